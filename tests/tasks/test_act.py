"""Acting: parts of episodes, losses, returns that are counted down, and what is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headwise
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import resume
from headwise.tasks.act import Act, ActConfig, EpisodeData, ModelPolicy
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import LossState
from headwise.worlds.environments import Environment
from headwise.worlds.episodes import Episode, Episodes
from headwise.worlds.logs import write_log
from headwise.worlds.rollout import POLICIES, collect, play
from headwise.worlds.spaces import EpisodeEncoder, Spaces


def record(folder: Path, name: str, policies: dict[str, int], **settings: Any) -> str:
    place = Environment.of(name, settings)
    players = {policy: (POLICIES[policy](), count) for policy, count in policies.items()}
    spaces = Spaces.of(place.make(1))
    write_log(
        folder, collect(place, players, 0), environment=place.id, settings=place.settings, spaces=spaces,
        policies=dict.fromkeys(players, 1.0), seed=0,
    )  # fmt: skip
    return str(folder)


def make_episodes() -> Episodes:
    """Two episodes of 5 and 3 steps with two numbers a state; the action is that of a third."""
    random = np.random.default_rng(0)
    parts = [
        Episode(
            random.standard_normal((length, 2)).astype(np.float32), random.integers(3, size=length),
            np.arange(length, dtype=np.float32), True,
        )
        for length in (5, 3)
    ]  # fmt: skip
    return Episodes.join(parts)


def make_task(episodes: Episodes, **settings: Any) -> Act:
    encoder = EpisodeEncoder.from_episodes("none", {}, Spaces((2,), 3, True), episodes)
    return Act(ActConfig(context=4, **settings), Tokenisers(encoder, encoder))


def test_parts_of_episodes_do_not_cross_their_ends() -> None:
    episodes = make_episodes()
    data = EpisodeData(episodes, make_task(episodes).encoder, 4, seed=1, size=3)
    assert sorted(np.concatenate(list(data.plan(0)))) != list(range(8)) and len(data.plan(0)) == 2
    batch = data.batch(np.array([0, 3, 5]))
    assert batch.keep.tolist() == [[True] * 4, [True, True, False, False], [True, True, True, False]]
    assert batch.steps[batch.keep].tolist() == [0, 1, 2, 3, 3, 4, 0, 1, 2] and batch.tokens == 9
    to_go = torch.tensor([10, 10, 9, 7, 7, 4, 3, 3, 2.0]) / 10
    torch.testing.assert_close(batch.returns[batch.keep], to_go)
    assert batch.actions[1, :2].tolist() == episodes.actions[3:5].tolist()


def test_padding_has_no_loss_and_a_clone_sees_no_return() -> None:
    episodes = make_episodes()
    for condition, differs in (("return", True), ("none", False)):
        task = make_task(episodes, condition=condition)
        model = task.build(headwise.catalog.find("decision-transformer-tiny")[0].configure("tiny")).eval()
        batch = EpisodeData(episodes, task.encoder, 4, 1, 2).batch(np.array([3, 5]))
        loss = task.loss(model, batch, LossState())
        batch.observations[0, 2:], batch.actions[0, 2:] = 7.0, 0
        torch.testing.assert_close(task.loss(model, batch, LossState()).total, loss.total)
        assert int(loss.count) == 5
        batch.returns[:] = 5.0
        assert torch.equal(task.loss(model, batch, LossState()).total, loss.total) != differs


class Echo:
    """A model that records what it is asked."""

    def __init__(self) -> None:
        self.asked: list[torch.Tensor] = []

    def __call__(self, trajectory: Any) -> Any:
        from headwise.models.decision_transformer import Decision

        self.asked.append(trajectory.returns)
        return Decision(torch.zeros(*trajectory.returns.shape, 3).index_fill_(-1, torch.tensor([1]), 1.0))


def test_returns_are_counted_down_by_rewards() -> None:
    """In `catch`, whose paddle stays where it is: +1 and -1 for things that fall."""
    place = Environment.of("catch", {"observe": "state", "falls": 4})
    environments = place.make(2)
    spaces = Spaces.of(environments)
    encoder = EpisodeEncoder(place.id, place.settings, spaces, (0.0,) * 7, (1.0,) * 7, 2.0, 400, (0.0,))
    model, task = Echo(), Act(ActConfig(context=3), Tokenisers(encoder, encoder))
    episodes = play(environments, ModelPolicy(task, model, 5.0), [1, 2])  # type: ignore[arg-type]
    for row, episode in enumerate(episodes):
        asked = torch.stack([returns[row, -1] for returns in model.asked[: len(episode)]])
        before = np.concatenate(([0.0], np.cumsum(episode.rewards)[:-1]))
        np.testing.assert_allclose(asked.numpy(), (5 - before) / 2, rtol=1e-6)
        assert set(episode.actions) == {1} and episode.total in (-4, -2, 0, 2, 4)
    assert [returns.shape[1] for returns in model.asked[:5]] == [1, 2, 3, 3, 3]


TRAIN = {"steps": 150, "batch_size": 32, "samples": 0, "schedule": {"kind": "cosine", "lr": 0.003, "warmup": 10}}


def make_tables(log: str, tmp_path: Path, **task: Any) -> dict[str, Any]:
    return {
        "task": {"kind": "act", "context": 4, "episodes": 6, **task},
        "data": {"train": log, "cache": str(tmp_path / "cache")},
        "model": {"kind": "decision-transformer-tiny", "dropout": 0.0, "attention_dropout": 0.0},
        "train": TRAIN,
    }


def train_on(tmp_path: Path, name: str, targets: tuple[float, ...], **settings: Any) -> Any:
    """Train on a log of a random policy and an expert, and evaluate: asked for and achieved returns, and scores."""
    log = record(tmp_path / "log", name, {"random": 20, "expert": 40}, observe="state", **settings)
    tables = make_tables(log, tmp_path, targets=targets)
    run, _ = headwise.train_experiment(parse_experiment(tables), tmp_path / "runs")
    evaluation = headwise.load(run.path, which="last").evaluate()
    return *(np.array(texts, float) for texts in (evaluation.sources, evaluation.outputs)), evaluation.scores


def test_the_asked_return_is_achieved(tmp_path: Path) -> None:
    """Continuous actions: asked for much it does as the expert, for little as the random policy."""
    asked, achieved, (best, correlation) = train_on(tmp_path, "reach", (0.0, 5.0), max_steps=40)
    low, high = (float(achieved[asked == target].mean()) for target in (0, 5))
    assert high - low > 1.5 and (best.name, correlation.name) == ("return", "Spearman")
    assert best.value == pytest.approx(high, rel=1e-4) and correlation.value > 30 and len(asked) == 12


def test_discrete_actions_are_learnt(tmp_path: Path) -> None:
    """A random paddle loses most of four things."""
    assert train_on(tmp_path, "catch", (4.0,), things=1, falls=4)[2][0].value > 2


def test_frames_train_and_a_killed_run_is_resumed_bit_by_bit(tmp_path: Path) -> None:
    log = record(tmp_path / "log", "grid", {"noisy": 6})
    tables = make_tables(log, tmp_path, state_weight=0.1, return_weight=0.1)
    tables["train"] = {**TRAIN, "steps": 4, "batch_size": 4, "schedule": {"kind": "constant"}}
    whole, _ = headwise.train_experiment(parse_experiment({**tables, "name": "whole"}), tmp_path)
    half = {**tables, "name": "half", "train": {**tables["train"], "steps": 2}}
    part, _ = headwise.train_experiment(parse_experiment(half), tmp_path)
    resume(part.path, steps=2)
    models = [headwise.load(run.path, which="last").model.state_dict() for run in (whole, part)]
    assert all(torch.equal(tensor, models[1][name]) for name, tensor in models[0].items())
    assert models[0]["embed.observations.convolutions.0.weight"].shape == (32, 3, 8, 8)


def test_cloning_is_asked_for_nothing(tmp_path: Path) -> None:
    log = record(tmp_path / "log", "CartPole-v1", {"expert": 4})
    tables = make_tables(log, tmp_path, condition="none", sample=True)
    tables["train"] = {**TRAIN, "steps": 3}
    tables["data"]["best"] = 0.5
    run, _ = headwise.train_experiment(parse_experiment(tables), tmp_path / "runs")
    evaluation = headwise.load(run.path).evaluate()
    assert [score.name for score in evaluation.scores] == ["return"] and set(evaluation.sources) == {""}
    assert "cloned" in evaluation.scores[0].detail and len(evaluation.outputs) == 6


def test_a_log_of_another_environment_does_not_continue_a_run(tmp_path: Path) -> None:
    logs = [record(tmp_path / name, name, {"expert": 3}) for name in ("CartPole-v1", "MountainCar-v0")]
    tables = make_tables(logs[0], tmp_path)
    tables["train"] = {**TRAIN, "steps": 2}
    run, _ = headwise.train_experiment(parse_experiment(tables), tmp_path / "runs")
    tuned = {**tables, "init_from": str(run.path), "data": {**tables["data"], "train": logs[1]}}
    with pytest.raises(UserError, match="a log of MountainCar-v0, but the model was trained in CartPole-v1"):
        headwise.train_experiment(parse_experiment(tuned), tmp_path / "runs")
