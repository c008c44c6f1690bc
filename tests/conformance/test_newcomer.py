"""A user's own mixer, written in one short file, in a stack beside the built-in parts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checks import CHECKS, Model, check_overfit, check_round_trip, ready

import headwise
from headwise import UserError
from headwise.blocks.part import PartConfig
from headwise.blocks.tables import PARTS
from headwise.config.base import Config
from headwise.utils.plugins import add_parts

FILE = Path(__file__).with_name("moving_average.py")


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the user's file as `--with` does, and leave the table of parts as it was."""
    monkeypatch.setattr(PARTS, "loaded", dict(PARTS.loaded))
    add_parts([FILE])
    yield
    del sys.modules[next(name for name in sys.modules if name.startswith("headwise_user_moving_average"))]


def hybrid(width: int = 8, **settings: Any) -> Model:
    """Layers that average and layers that attend, in turn."""
    torch.manual_seed(0)
    average, mlp, cross = "moving-average", "mlp", {"kind": "attention", "attend_to": "memory"}
    return headwise.build(
        "transformer-tiny",
        vocab=11,
        width=width,
        heads=2,
        dropout=0.0,
        encoder={"depth": 2, "layers": [[average, mlp], ["attention", mlp]]},
        decoder={"depth": 3, "layers": [[average, cross, mlp], ["attention", cross, mlp]]},
        **settings,
    )


def test_the_file_is_short() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) < 80


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_keeps_all_promises(check: Any) -> None:
    check(ready(hybrid()))


@pytest.mark.parametrize("wiring", ["post", "pre"])
def test_survives_a_file_and_learns(wiring: str, tmp_path: Path) -> None:
    fresh = hybrid(wiring=wiring).double().eval()
    check_round_trip(ready(hybrid(wiring=wiring)), fresh, tmp_path / "model.safetensors")
    check_overfit(hybrid(width=16, wiring=wiring))


def test_a_shared_layer_has_a_state_for_each_of_its_places() -> None:
    layers = [["moving-average", {"kind": "attention", "attend_to": "memory"}]]
    torch.manual_seed(0)
    model = headwise.build("transformer-tiny", vocab=11, decoder={"depth": 3, "layers": layers, "shared": True})
    for check in CHECKS:
        check(ready(model))


def test_a_part_without_build_says_so() -> None:
    class Unfinished(PartConfig):
        kind: str = "unfinished"

    PARTS.add(Unfinished)
    with pytest.raises(TypeError, match="Unfinished has no build method"):
        headwise.build("transformer-tiny", vocab=11, encoder={"layers": [["unfinished"]]})


def test_a_misspelt_part_is_put_right() -> None:
    assert isinstance(PARTS.parse("moving-average"), Config)
    with pytest.raises(
        UserError, match=r"encoder\.layers.*no part is called 'moving-averag'; did you mean moving-average"
    ):
        headwise.build("transformer-tiny", vocab=11, encoder={"layers": [["moving-averag"]]})
