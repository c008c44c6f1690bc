"""Deep Q-learning: targets written out, the values of value iteration, exploring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import headwise
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.models.dqn import DqnConfig
from headwise.tasks.q_learning import QLearning, QLearningConfig
from headwise.tasks.replay_source import ReplayBatch
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import LossState
from headwise.worlds.spaces import EpisodeEncoder, Spaces

STATES, ACTIONS, DISCOUNT = 6, 2, 0.8


def make_mdp() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A Markov decision process: the next state, the reward and whether it ends, for each state and action."""
    random = np.random.default_rng(3)
    following = random.integers(STATES, size=(STATES, ACTIONS))
    rewards = random.integers(-2, 3, size=(STATES, ACTIONS)).astype(float)
    return following, rewards, random.random((STATES, ACTIONS)) < 0.2


class TabularEnv(gymnasium.Env[Any, Any]):
    """The Markov decision process; a state is one of the unit vectors."""

    def __init__(self) -> None:
        self.following, self.rewards, self.ends = make_mdp()
        self.observation_space = gymnasium.spaces.Box(0, 1, (STATES,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(ACTIONS)

    def observe(self) -> np.ndarray:
        return np.eye(STATES, dtype=np.float32)[self.state]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(STATES))
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        place = (self.state, int(action))
        self.state = int(self.following[place])
        return self.observe(), float(self.rewards[place]), bool(self.ends[place]), False, {}


@pytest.fixture
def tabular() -> Iterator[str]:
    name = "Tabular-v0"
    gymnasium.register(name, TabularEnv, max_episode_steps=10)
    yield name
    del gymnasium.registry[name]


def iterate_values() -> np.ndarray:
    following, rewards, ends = make_mdp()
    q = np.zeros((STATES, ACTIONS))
    for _ in range(200):
        q = rewards + DISCOUNT * np.where(ends, 0, q.max(1)[following])
    return q


def test_dqn_finds_the_values_of_value_iteration(tabular: str, tmp_path: Path) -> None:
    """A linear network on unit vectors is a table: off the policy, whatever explores."""
    tables = {
        "task": {
            "kind": "q-learning", "discount": DISCOUNT, "environments": 16, "capacity": 5000,
            "warmup": 1000, "epsilon": 1.0, "target_rate": 0.1,
        },
        "data": {"name": tabular, "valid_episodes": 2, "test_episodes": 2},
        "model": {"kind": "dqn"},
        "train": {
            "steps": 1200, "batch_size": 64, "samples": 0, "validate_every": 1200, "clip_norm": 0,
            "schedule": {"kind": "cosine", "lr": 0.03, "warmup": 0},
        },
    }  # fmt: skip
    run, _ = headwise.train_experiment(parse_experiment(tables), tmp_path)
    model = headwise.load(run.path, which="last").model
    with torch.no_grad():
        q = model(torch.eye(STATES)).numpy()
    np.testing.assert_allclose(q, iterate_values(), atol=0.02)


def make_task(**settings: Any) -> QLearning:
    encoder = EpisodeEncoder("none", {}, Spaces((4,), 3, True), (0.0,) * 4, (1.0,) * 4, 1.0, 1, (0.0,))
    return QLearning(QLearningConfig(**settings), Tokenisers(encoder, encoder))


def make_batch(rows: int = 5) -> ReplayBatch:
    torch.manual_seed(0)
    return ReplayBatch(
        torch.randn(rows, 4), torch.tensor([0, 1, 2, 1, 0]), torch.randn(rows) * 3,
        torch.tensor([0.5, 0.0, 0.5, 0.25, 0.5]), torch.randn(rows, 4), torch.zeros(0, 1, 4),
        torch.ones(0, 1, dtype=torch.bool), rows,
    )  # fmt: skip


@pytest.mark.parametrize("double", [True, False])
def test_the_loss_is_the_equation(double: bool) -> None:
    task, batch = make_task(double=double), make_batch()
    model = task.build(DqnConfig(mlp=(8,)))
    with torch.no_grad():
        for weight in model.parameters():  # so that network and target differ
            weight.add_(0.3 * torch.randn_like(weight))
    losses = []
    for row in range(len(batch)):
        own, target = model(batch.next_observations[row : row + 1])[0], None
        target = model.target_values(model.values, batch.next_observations[row : row + 1])[0]
        best = int(own.argmax()) if double else int(target.argmax())
        y = batch.rewards[row] + batch.discounts[row] * target[best]
        q = model(batch.observations[row : row + 1])[0, int(batch.actions[row])]
        losses.append(F.huber_loss(q, y.detach()))
    loss = task.loss(model, batch, LossState())
    torch.testing.assert_close(loss.total, torch.stack(losses).sum())
    loss.total.backward()
    assert all(weight.grad is not None for weight in model.parameters()) and int(loss.count) == 5


def test_exploring_begins_at_random_and_ends_greedy() -> None:
    task = make_task(epsilon=0.0, explore=100)
    model = task.build(DqnConfig(mlp=(8,)))
    seen = torch.randn(1000, 4)
    best = model.act(seen).numpy()
    shares = [float((task.explore(model, seen, played, np.random.default_rng(0)) == best).mean()) for played in (0, 50)]
    assert shares == pytest.approx([1 / 3, 2 / 3], abs=0.05)
    assert (task.explore(model, seen, 200, np.random.default_rng(0)) == best).all()


def test_targets_follow_as_often_as_is_set() -> None:
    task = make_task(target_every=3, target_rate=1.0)
    model = task.build(DqnConfig(mlp=(8,)))
    with torch.no_grad():
        model.values[0].weight.add_(1.0)
    before = dict(model.target_values.named_buffers())["0_weight"].clone()
    for step in (1, 2, 3):
        task.after_step(model, step)
        moved = not torch.equal(dict(model.target_values.named_buffers())["0_weight"], before)
        assert moved == (step == 3)


@pytest.mark.parametrize(
    ("spaces", "settings", "sentence"),
    [
        (Spaces((4,), 2, False, (-1.0,) * 2, (1.0,) * 2), {}, "continuous ones; use 'soft-actor-critic'"),
        (Spaces((4,), 2, True), {"crop": 8}, "task.crop: x shows numbers, not pixels"),
        (Spaces((16, 16, 3), 2, True), {"pad": 2}, "task.pad: is for random crops"),
        (Spaces((16, 16, 3), 2, True), {"crop": 20}, "20 pixels are more than a frame has"),
        (Spaces((16, 16, 3), 2, True), {}, "frames of 16 x 16 pixels are too small; give 36 or more"),
    ],
)
def test_what_does_not_fit_is_refused(spaces: Spaces, settings: dict[str, Any], sentence: str) -> None:
    encoder = EpisodeEncoder("x", {}, spaces, (0.0,), (1.0,), 1.0, 1, (0.0,))
    task = QLearning(QLearningConfig(**settings), Tokenisers(encoder, encoder))
    with pytest.raises(UserError, match=sentence):
        task.build(DqnConfig())
