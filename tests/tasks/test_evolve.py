"""Evolution of policies: members are evaluated alike however they are grouped, runs resume bit by bit and learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headwise
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import resume
from headwise.runs.checkpoint import load_latest
from headwise.tasks.evolve import AgentPolicy, SeedBatch, measure_kept
from headwise.train.evolution.evolver import read_vector, write_vector
from headwise.train.evolution.workers import Workers
from headwise.worlds.environments import Environment
from headwise.worlds.rollout import collect, film

STATE = {"name": "reach", "settings": {"observe": "state", "max_steps": 20}}
FRAMES = {"name": "catch", "settings": {"falls": 1}}
AGENT = {"kind": "attention-agent-tiny", "side": 32}
PLAYERS = [(FRAMES, AGENT), (STATE, "recurrent-policy"), (FRAMES, "recurrent-policy")]


def describe(data: dict[str, Any], model: Any, strategy: Any = None, **train: Any) -> dict[str, Any]:
    strategy = {"kind": "cma-es", "population": 6, **(strategy or {})}
    task = {"kind": "evolve", "strategy": strategy}
    data = {**data, "valid_episodes": 6, "test_episodes": 6}
    settings = {"steps": 2, "batch_size": 2, "log_every": 1, "threads": 1, **train}
    return {"name": "run", "task": task, "data": data, "model": model, "train": settings}


def prepare(data: dict[str, Any], model: Any) -> tuple[Any, Any]:
    experiment = parse_experiment(describe(data, model))
    torch.manual_seed(0)
    prepared = experiment.task.task_class.prepare(experiment.data, experiment.tokeniser)
    task = experiment.create_task(prepared.tokenisers)
    return task, task.build(experiment.model).eval()


def draw_population(model: torch.nn.Module, count: int) -> np.ndarray:
    vector = read_vector(model)
    return vector + 0.5 * np.random.default_rng(0).standard_normal((count, len(vector)))


@pytest.mark.parametrize(
    ("data", "model"), [(FRAMES, AGENT), (STATE, "recurrent-policy"), (FRAMES, "recurrent-policy")]
)
def test_members_play_as_they_would_alone(data, model):
    task, built = prepare(data, model)
    population, batch = draw_population(built, 3), SeedBatch((5, 6))
    together = task.measure_members(built, population, batch)
    for member, loss in zip(population, together.losses, strict=True):
        write_vector(built, member)
        place = Environment.of(task.encoder.environment, task.encoder.settings)
        episodes = [episode for episode, _ in collect(place, {"model": (AgentPolicy(task, built), 2)}, 5)]
        assert np.mean([-episode.total for episode in episodes]) == pytest.approx(loss, abs=1e-3)
    assert together.steps >= sum(map(len, episodes))


def test_processes_change_nothing():
    task, built = prepare(STATE, "recurrent-policy")
    population, batch = draw_population(built, 19), SeedBatch((5, 6))
    alone, shared = Workers(task, built, 1), Workers(task, built, 2)
    try:
        here, there = (workers.measure(population, batch) for workers in (alone, shared))
        assert shared.pool is not None
    finally:
        shared.close()
    assert (here.losses == there.losses).all() and here.steps == there.steps
    assert len(set(here.losses)) > 15


def train(tables: dict[str, Any], folder: Path) -> Any:
    return headwise.train_experiment(parse_experiment(tables), folder)[0]


@pytest.mark.parametrize("strategy", [{}, {"covariance": "full"}, {"kind": "openai-es"}], ids=str)
def test_a_resumed_run_is_bit_for_bit_that_of_one_go(tmp_path, strategy):
    model = {"kind": "recurrent-policy", "hidden": 3}
    whole = train(describe(STATE, model, strategy, steps=5, schedule={"kind": "constant", "lr": 0.1}), tmp_path / "a")
    half = train(describe(STATE, model, strategy, steps=2, schedule={"kind": "constant", "lr": 0.1}), tmp_path / "b")
    resume(half.path, steps=3)
    first, second = (load_latest(run) for run in (whole, half))
    assert first.step == second.step == 5
    for part in ("model", "optimizer"):
        a, b = getattr(first, part), getattr(second, part)
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    rows = [json.loads(line) for line in (whole.path / "metrics.jsonl").read_text().splitlines()]
    assert {"loss", "population", "unit"} <= rows[0].keys() and rows[0]["tokens"] == 6 * 2 * 20
    assert "return" in rows[-1]["valid"]


def test_it_learns(tmp_path):
    """A pole is balanced for longer than by chance, about 20 steps."""
    model, strategy = {"kind": "recurrent-policy", "hidden": 4}, {"population": 16, "sigma": 1.0}
    tables = describe({"name": "CartPole-v1"}, model, strategy, steps=18, validate_every=3)
    run = train(tables, tmp_path)
    assert run.state["best"]["name"] == "return" and run.state["best"]["value"] > 50
    (score,) = headwise.load(run.path).evaluate().scores
    assert score.name == "return" and score.value > 40


def test_the_share_that_is_kept_is_measured_from_random_play():
    score = measure_kept("blobs", np.array([4.0, 8.0]), np.array([8.0, 12.0]), np.array([0.0, 4.0]))
    assert score.value == pytest.approx(50) and score.unit == "%"
    nothing = measure_kept("blobs", np.array([4.0, 8.0]), np.array([1.0, 1.0]), np.array([1.0, 2.0]))
    assert nothing.value == 0


def test_changes_of_the_world_are_scored(tmp_path):
    tables = describe(FRAMES, AGENT, steps=1, batch_size=1)
    tables["task"]["changes"] = {"colours": {"colours": "shifted"}, "blobs": {"distractors": 3}}
    loaded = headwise.load(train(tables, tmp_path).path)
    evaluation = loaded.evaluate()
    assert [score.name for score in evaluation.scores] == ["return", "kept colours", "kept blobs"]
    assert len(evaluation.outputs) == 18
    watched = film(Environment.of("catch", FRAMES["settings"]), loaded.task.build_policy(loaded.model), 3)
    view = watched.views[0]
    assert len(watched.frames) == len(watched.views) == len(watched.episode)
    assert view.patches.shape == (4, 4) and (view.patches[:, :2] + view.patches[:, 2:]).max() <= 1
    assert view.importance.shape == (7, 7) and view.values.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        (describe({"name": "catch", "settings": {"observe": "state"}}, AGENT), "7 numbers and no frames"),
        (describe({"name": "catsh"}, AGENT), "there is no environment 'catsh'; did you mean catch"),
        (describe({"name": ""}, AGENT), "names no environment"),
        (describe(FRAMES, AGENT, {"population": 1}), "population"),
        (describe(FRAMES, AGENT, {"kind": "openai-es", "population": 7}), "even number"),
        (describe(FRAMES, {**AGENT, "top": 50}), "50 patches cannot be kept of 49"),
        (describe(FRAMES, {**AGENT, "side": 5}), "patches of 7 pixels do not fit into frames of 5"),
        (describe({**FRAMES, "train": "log"}, AGENT), "an environment has no files"),
        (describe(FRAMES, "gpt-tiny"), "cannot evolve"),
    ],
)
def test_mistakes_are_told_in_one_sentence(tmp_path, tables, says):
    with pytest.raises(UserError, match=says):
        train(tables, tmp_path)
    assert not list(tmp_path.iterdir())
