"""Chains of products on the autograd graph, and wall time over length."""

import json
from pathlib import Path

import pytest
import torch

from headwise.bench.length import LAYERS, longest_chain, measure, run_unfused
from headwise.cli.bench import app
from headwise.errors import UserError


@pytest.mark.parametrize("length", [3, 20])
def test_recurrent_layers_wait_at_each_token_and_attention_never(length: int) -> None:
    x = torch.randn(1, length, 8, requires_grad=True)
    chains = {name: longest_chain(run_unfused(make(8), x)) for name, make in LAYERS.items()}
    assert chains == {"rnn": length, "lstm": length, "attention": 4}


def test_the_unfolded_layer_is_the_layer() -> None:
    x = torch.randn(2, 5, 8)
    for make in LAYERS.values():
        layer = make(8)
        assert torch.allclose(run_unfused(layer, x).reshape(2, 8), layer(x)[:, -1], atol=1e-6)


def test_chains_deeper_than_the_stack_of_python() -> None:
    x = torch.eye(2, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y @ x
    assert longest_chain(y) == 3000


def test_every_repeat_is_kept_and_lengths_go_upwards() -> None:
    rows = measure((8, 4), width=8, repeats=3)
    assert [row["lstm"].length for row in rows] == [4, 8]
    for row in rows:
        assert all(len(timing.seconds) == len(timing.cpu) == 3 for timing in row.values())
        assert row["attention"].ratio(row["attention"]) == 1


def test_the_command_prints_a_table_or_json_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["length", "--width", "8", "--lengths", "4", "8", "--repeats", "1"]
    app([*small, "--out", str(tmp_path / "x.svg")], result_action="return_value")
    lines = capsys.readouterr().out.splitlines()
    assert "width 8, rows 1, threads 1, medians of 1" in lines[0]
    assert [(line.split()[0], line.split()[-2:]) for line in lines[2:4]] == [("4", ["4", "4"]), ("8", ["8", "4"])]
    assert "lstm: 8 sequential products" in (tmp_path / "x.svg").read_text()
    app([*small, "--json"], result_action="return_value")
    result = json.loads(capsys.readouterr().out)
    assert result["threads"] == 1 and [each["chain"] for each in result["results"]] == [4, 4, 4, 8, 8, 4]


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--repeats 0: must be at least 1"):
        measure(repeats=0)
    with pytest.raises(UserError, match="--lengths: give at least two"):
        measure((1, 5))
    with pytest.raises(UserError, match="--width 200: cannot be divided"):
        measure(width=200)
    with pytest.raises(UserError, match=r"x.gif: the file ends in '.gif'"):
        app(["length", "--out", str(tmp_path / "x.gif")], result_action="return_value")
