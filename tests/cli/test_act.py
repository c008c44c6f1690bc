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


LEARNER = """
name = "learner"
[task]
kind = "q-learning"
environments = 2
capacity = 100
warmup = 10
frame = 24
crop = 20
[data]
name = "catch"
valid_episodes = 2
test_episodes = 2
settings = {max_steps = 8}
[model]
kind = "curl-tiny"
[train]
steps = 4
batch_size = 4
"""


@pytest.fixture
def learner(headwise, tmp_path: Path) -> None:
    (tmp_path / "learner.toml").write_text(LEARNER)
    trained = headwise("train", "learner.toml")
    assert trained.status == 0 and "plays in 2 copies of headwise/Catch-v0" in trained.err, trained.err


def test_an_agent_that_learns_by_acting(headwise, learner, tmp_path: Path) -> None:
    evaluated = headwise("evaluate", "runs/learner", "--json")
    assert evaluated.status == 0, evaluated.err
    report = json.loads(evaluated.out)
    assert [score["name"] for score in report["scores"]] == ["return"] and report["items"] == 2
    watched = headwise("act", "watch", "runs/learner", "--out", "film.gif")
    assert watched.status == 0 and "8 steps, return" in watched.err
    options = ("--policy", "runs/learner", "--episodes", 2, "--out", "replay", "--set", "max_steps=8")
    assert headwise("act", "collect", "catch", *options).status == 0
    resumed = headwise("train", "--resume", "runs/learner", "--steps", 3)
    assert resumed.status == 0 and "stopped (steps) after 7 steps" in resumed.err, resumed.err


def test_mistakes_with_a_learner(headwise, learner, agent, tmp_path: Path) -> None:
    for words, sentence in (
        (("train", "learner.toml", "--set", "data.name=catsh"), "did you mean catch?"),
        (("train", "learner.toml", "--set", "data.name=reach"), "use 'soft-actor-critic'"),
        (("train", "learner.toml", "--set", "data.settings.things=0"), "settings of headwise/Catch-v0: things"),
        (("train", "learner.toml", "--set", "data.settings.observe=state"), "shows numbers, not pixels"),
        (
            ("train", "learner.toml", "--set", "data.settings.observe=state", "--set", "task.frame=0", "--set",
             "task.crop=0"),
            "and the environment shows numbers",
        ),
        (("train", "learner.toml", "--set", "init_from=runs/learner", "--set", "data.name=grid"), "whose observations"),
        (("train", "learner.toml", "--set", "data.train=log"), "an environment has no files"),
        (("train", "learner.toml", "--set", "model=cnn"), "cannot q-learning"),
        (("evaluate", "runs/learner", "--data", "log"), "leave it out"),
        (("evaluate", "runs/learner", "--by-return", "x.svg"), "is asked for no return"),
        (("act", "watch", "runs/learner", "--return", 3, "--out", "x.gif"), "is asked for no return"),
        (("act", "collect", "grid", "--policy", "runs/learner", "--out", "x"), "was trained in headwise/Catch-v0"),
        (("generate", "runs/learner", "a"), "this run was trained to q-learning"),
    ):  # fmt: skip
        outcome = headwise(*words)
        assert outcome.status == 2 and sentence in outcome.err and outcome.err.count("\n") == 1, outcome.err


def test_a_missing_package_is_named_with_its_extra(headwise, monkeypatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.startswith(("headwise.worlds.env", "headwise.worlds.roll"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    (tmp_path / "learner.toml").write_text(LEARNER)
    for words in (("act", "collect", "grid", "--out", "x"), ("train", "learner.toml")):
        outcome = headwise(*words)
        assert outcome.status == 2 and "pip install 'headwise[rl]'" in outcome.err and outcome.err.count("\n") == 1
