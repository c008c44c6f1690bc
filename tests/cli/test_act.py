"""`headwise act`, and agents in `train` and `evaluate`: a whole round, and mistakes in one sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

EXPERIMENT = """
name = "agent"
[task]
kind = "act"
context = 3
episodes = 2
[data]
train = "log"
cache = "cache"
[model]
kind = "decision-transformer-tiny"
[train]
steps = 2
batch_size = 4
"""


@pytest.fixture
def agent(headwise, tmp_path: Path):
    """A log and a run that was trained on it."""
    collected = headwise(
        "act", "collect", "grid", "--policy", "random", "--policy", "noisy=2", "--episodes", 6, "--out", "log",
        "--set", "observe=state", "--set", "max_steps=12", "--json",
    )  # fmt: skip
    assert collected.status == 0, collected.err
    (tmp_path / "agent.toml").write_text(EXPERIMENT)
    assert headwise("train", "agent.toml").status == 0
    return json.loads(collected.out)


def test_collect_train_evaluate_watch(headwise, agent, tmp_path: Path) -> None:
    assert agent["episodes"] == 6 and agent["steps"] <= 72 and agent["lowest"] <= agent["mean"] <= agent["highest"]
    manifest = json.loads((tmp_path / "log" / "manifest.json").read_text())
    assert manifest["played_by"] == ["random"] * 2 + ["noisy"] * 4 and manifest["environment"] == "headwise/Grid-v0"
    assert manifest["settings"] == {"observe": "state", "max_steps": 12}
    evaluated = headwise("evaluate", "runs/agent", "--by-return", "returns.png", "--json")
    assert evaluated.status == 0, evaluated.err
    report = json.loads(evaluated.out)
    assert [score["name"] for score in report["scores"]] == ["return", "Spearman"] and report["items"] % 2 == 0
    with Image.open(tmp_path / "returns.png") as picture:
        assert picture.width > 300
    watched = headwise("act", "watch", "runs/agent", "--return", 3, "--out", "film.gif")
    assert watched.status == 0 and "steps, return" in watched.err
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames > 5
    options = ("--policy", "runs/agent", "--episodes", 2, "--out", "replay", "--set", "observe=state")
    assert headwise("act", "collect", "grid", *options).status == 0


def test_watch_an_expert_as_a_strip(headwise, tmp_path: Path) -> None:
    assert headwise("act", "watch", "catch", "--set", "falls=1", "--out", "strip.png").status == 0
    with Image.open(tmp_path / "strip.png") as strip:
        assert strip.size == (2 * (10 * (160 + 8) + 8), 2 * (8 + 160 + 20))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["collect", "grit", "--out", "x"], "there is no environment 'grit'; did you mean grid?"),
        (["collect", "grid", "--out", "x", "--set", "coin=3"], "settings of headwise/Grid-v0: coin: "),
        (["collect", "grid", "--out", "x", "--policy", "expart"], "did you mean expert?"),
        (["collect", "grid", "--out", "x", "--policy", "noisy=no"], "'no' is no share"),
        (["collect", "grid", "--out", "x", "--policy", "noisy=0"], "a share is above 0"),
        (["collect", "grid", "--out", "x", "--episodes", "0"], "there must be at least one"),
        (["collect", "grid", "--out", "x", "--episodes", "1", "--policy", "random", "--policy", "noisy"], "too few"),
        (["collect", "FrozenLake-v1", "--out", "x"], "its observations are"),
        (["collect", "grid", "--out", "."], "exists already"),
        (["watch", "grid", "--out", "x.mp4"], "ends in '.mp4'"),
        (["watch", "nowhere", "--out", "x.gif"], "there is no environment 'nowhere'"),
    ],
)
def test_mistakes_are_told_in_one_sentence(headwise, tmp_path: Path, words: list[str], sentence: str) -> None:
    outcome = headwise("act", *words)
    assert outcome.status == 2 and sentence in outcome.err and outcome.err.count("\n") == 1, outcome.err
    assert not [path for path in tmp_path.iterdir() if path.name != "cache"]


def test_mistakes_with_a_run(headwise, agent, tmp_path: Path) -> None:
    for words, sentence in (
        (("evaluate", "runs/agent", "--data", "log"), "leave it out"),
        (("act", "collect", "catch", "--policy", "runs/agent", "--out", "x"), "was trained in headwise/Grid-v0"),
        (("act", "collect", "grid", "--policy", "runs/agent", "--out", "x"), "observations or actions differ"),
        (("generate", "runs/agent", "a"), "this run was trained to act, not to language-model"),
        (("train", "agent.toml", "--set", "data.train=nothing"), "there is no such folder"),
    ):
        outcome = headwise(*words)
        assert outcome.status == 2 and sentence in outcome.err and outcome.err.count("\n") == 1, outcome.err
    (tmp_path / "log" / "manifest.json").write_text("{}")
    outcome = headwise("train", "agent.toml")
    assert outcome.status == 2 and "is no manifest of episodes" in outcome.err
    assert not (tmp_path / "x").exists() and not (tmp_path / "runs" / "agent-2").exists()


def test_a_missing_package_is_named_with_its_extra(headwise, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("headwise.worlds.env", "headwise.worlds.roll"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    outcome = headwise("act", "collect", "grid", "--out", "x")
    assert outcome.status == 2 and "pip install 'headwise[rl]'" in outcome.err and outcome.err.count("\n") == 1
