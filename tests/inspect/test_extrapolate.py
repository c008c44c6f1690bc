"""Losses beyond the lengths of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headwise
from headwise import UserError
from headwise.cli.extrapolate import extrapolate as command
from headwise.data.examples import Examples, tokenise
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.extrapolate import extrapolate, plot

TEXT = "the quick brown fox jumps over the lazy dog. " * 40


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text(TEXT)
    kinds = {"rotary": "rotary", "learned": {"kind": "learned", "max_length": 24}}
    runs_by_name = {}
    for name, positions in kinds.items():
        experiment = parse_experiment(
            {
                "name": name,
                "task": {"kind": "language-model", "context": 16},
                "data": {"train": str(folder / "text.txt"), "format": "text", "cache": str(folder / "cache")},
                "tokeniser": "characters",
                "model": {"kind": "gpt2-tiny", "positions": positions, "dropout": 0.0},
                "train": {"steps": 20, "batch_size": 8, "schedule": {"kind": "cosine", "lr": 0.003, "warmup": 5}},
            }
        )
        runs_by_name[name] = train_experiment(experiment, folder)[0].path
    return runs_by_name


def measured(path: Path, times: int = 4) -> tuple[TrainedModel, Any]:
    loaded = headwise.load(path)
    examples = Examples.from_rows(tokenise([("", TEXT)], loaded.tokenisers))
    return loaded, extrapolate(loaded, examples, times)


def test_losses_by_position_add_up_to_the_loss_of_all_windows(runs: dict[str, Path]) -> None:
    loaded, spans = measured(runs["rotary"])
    assert [(span.low, span.high) for span in spans] == [(low, low + 4) for low in range(0, 64, 4)]
    ids = torch.tensor([[1, *loaded.tokenisers.target.encode(TEXT)]])
    stream = ids[0, : 64 * 28 + 1]
    labels = torch.cat([ids[0, 1:], torch.tensor([2])])
    windows = [(ids[:, a : a + 64], labels[a : a + 64]) for a in range(0, len(labels), 64)]
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(loaded.model(x)[0], y, reduction="sum") for x, y in windows]
    assert len(stream) > 64
    total = sum(span.nll * span.tokens for span in spans)
    assert total == pytest.approx(float(sum(losses)), rel=1e-4)
    assert sum(span.tokens for span in spans) == len(labels)
    assert all(span.interval[0] <= span.nll <= span.interval[1] for span in spans)


def test_learned_positions_limit_the_length(runs: dict[str, Path]) -> None:
    _, spans = measured(runs["learned"])
    assert max(span.high for span in spans) == 24
    assert all(np.isfinite(span.nll) for span in spans)


def test_the_command_prints_a_column_for_each_run_and_draws(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(*runs.values(), times=2, out=tmp_path / "curves.svg")
    head, first, *_, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["positions", "rotary", "learned"]
    assert first.startswith("0-3") and last.startswith("28-31") and last.split()[-1] == "-"
    assert (tmp_path / "curves.svg").read_text().startswith("<?xml")
    with pytest.raises(UserError, match="name at least one run"):
        command()


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no text to measure on"):
        plot({"empty": []}, 16, tmp_path / "x.svg")
