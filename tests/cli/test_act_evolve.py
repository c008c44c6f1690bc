"""Evolved agents at the command line: a whole round, and mistakes in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

EXPERIMENT = """
name = "agent"
[task]
kind = "evolve"
strategy = {population = 6}
changes = {blobs = {distractors = 3}}
[data]
name = "catch"
settings = {falls = 1}
valid_episodes = 2
test_episodes = 2
[model]
kind = "attention-agent-tiny"
[train]
steps = 2
batch_size = 1
"""


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    (tmp_path / "agent.toml").write_text(EXPERIMENT)
    return "agent.toml"


def test_train_evaluate_watch(headwise, experiment, tmp_path: Path) -> None:
    trained = headwise("train", experiment)
    assert trained.status == 0 and "6 members, 4 episodes" not in trained.err and "6 members, 1 episodes" in trained.err
    report = json.loads(headwise("evaluate", "runs/agent", "--json").out)
    assert [score["name"] for score in report["scores"]] == ["return", "kept blobs"] and report["items"] == 4
    for name in ("film.gif", "strip.png", "strip.svg"):
        assert headwise("act", "watch", "runs/agent", "--set", "distractors=2", "--out", name).status == 0
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames > 5
    strip = (tmp_path / "strip.svg").read_text()
    assert strip.count("<image") == 10 and strip.count("<rect") == 1 + 10 * 4  # paper, patches


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--set", "task.strategy.population=1"], "should be greater than or equal to 6"),
        (["--set", "data.settings.observe=state"], "no frames, which an Attention Agent needs"),
        (["--set", "model.side=5"], "do not fit into frames of 5"),
        (["--set", "model.top=50"], "50 patches cannot be kept of 49"),
        (["--set", "data.name=CarRacing-v9"], "there is no environment 'CarRacing-v9'"),
    ],
)
def test_mistakes(headwise, experiment, words, sentence) -> None:
    told = headwise("train", experiment, *words)
    assert told.status == 2 and sentence in told.err and len(told.err.strip().splitlines()) == 1
