"""`headwise explain windows` tells what the models do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headwise import UserError
from headwise.cli.explain import app
from headwise.explain.windows import ShiftedWindows, compute_windows


def test_partial_windows_are_rolled_into_full_windows() -> None:
    result = compute_windows(ShiftedWindows(grid=6, window=3, shift=1))
    assert result.shifted[0].tolist() == [1, 2, 2, 2, 3, 3]
    assert result.shifted[:, 0].tolist() == [1, 4, 4, 4, 7, 7]
    assert np.array_equal(result.rolled, np.roll(result.shifted, (-1, -1), (0, 1)))
    last = result.rolled[result.windows == 4]
    assert np.array_equal(result.allowed, last[:, None] == last[None])
    assert result.masked == 3


def test_windows_are_explained_as_text_json_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(["windows"], result_action="return_value")
    assert "3 of 4 windows" in capsys.readouterr().out
    picture = tmp_path / "windows.svg"
    app(["windows", "--json", "--out", str(picture)], result_action="return_value")
    data = json.loads(capsys.readouterr().out)
    assert data["masked"] == 3 and max(map(max, data["shifted"])) == 9
    assert "Shifted windows" in picture.read_text()


@pytest.mark.parametrize(("wrong", "key"), [({"grid": 99}, "grid"), ({"window": 3}, "window"), ({"shift": 4}, "shift")])
def test_invalid_window_settings_are_refused(wrong: dict[str, int], key: str) -> None:
    with pytest.raises(UserError, match=f"--{key}"):
        ShiftedWindows(**wrong)
