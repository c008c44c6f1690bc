"""Soft actor-critic: losses written out, densities against torch.distributions, and the linear-quadratic regulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

import headwise
from headwise.experiment.config import parse_experiment
from headwise.models.sac import SacAgent, SacConfig
from headwise.tasks.replay_source import ReplayBatch
from headwise.tasks.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import LossState
from headwise.worlds.spaces import EpisodeEncoder, Spaces

A, B, Q, R, DISCOUNT = 1.0, 0.5, 1.0, 0.2, 0.9  # x' = A x + B u; cost Q x² + R u²


class LinearQuadraticEnv(gymnasium.Env[Any, Any]):
    """The linear-quadratic regulator of one number."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.x, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        cost = float(Q * self.x[0] ** 2 + R * action[0] ** 2)
        self.x = (A * self.x + B * action).astype(np.float32)
        return self.x, -cost, False, False, {}


@pytest.fixture
def regulator() -> Iterator[str]:
    name = "LinearQuadratic-v0"
    gymnasium.register(name, LinearQuadraticEnv, max_episode_steps=8)
    yield name
    del gymnasium.registry[name]


def solve_riccati() -> tuple[float, float]:
    """P and K of the discounted Riccati equation: the cost from x is P x², the best action -K x."""
    p = 0.0
    for _ in range(500):
        k = DISCOUNT * A * B * p / (R + DISCOUNT * B * B * p)
        p = Q + R * k * k + DISCOUNT * p * (A - B * k) ** 2
    return p, k


def test_sac_finds_the_gain_of_the_riccati_equation(regulator: str, tmp_path: Path) -> None:
    """With a temperature near 0, the policy is that of the regulator, and its values are its costs."""
    tables = {
        "task": {
            "kind": "soft-actor-critic", "discount": DISCOUNT, "environments": 16, "capacity": 20_000, "warmup": 2000,
            "target_rate": 0.05, "tune_temperature": False,
        },
        "data": {"name": regulator, "valid_episodes": 4, "test_episodes": 4},
        "model": {"kind": "sac", "mlp": [64, 64], "temperature": 0.002},
        "train": {
            "steps": 2000, "batch_size": 128, "samples": 0, "validate_every": 2000, "clip_norm": 0,
            "schedule": {"kind": "cosine", "lr": 0.003, "warmup": 0},
            "optimizer": {"kind": "adam", "betas": [0.9, 0.999], "eps": 1e-8},
        },
    }  # fmt: skip
    run, _ = headwise.train_experiment(parse_experiment(tables), tmp_path)
    model = headwise.load(run.path, which="last").model
    x = torch.linspace(-0.8, 0.8, 17)[:, None]
    cost, gain = solve_riccati()
    with torch.no_grad():
        actions = 2 * model(x)  # from -1 to 1, of the bounds -2 to 2
        values = model.values(x, actions / 2).amin(-1)
    assert float((actions + gain * x).abs().max()) < 0.12 and gain > 0.9
    assert float((values + cost * x[:, 0] ** 2).abs().max()) < 0.12


def make_task(**settings: Any) -> SoftActorCritic:
    spaces = Spaces((3,), 2, False, (-1.0,) * 2, (1.0,) * 2)
    encoder = EpisodeEncoder("none", {}, spaces, (0.0,) * 3, (1.0,) * 3, 1.0, 1, (0.0,))
    return SoftActorCritic(SoftActorCriticConfig(**settings), Tokenisers(encoder, encoder))


def make_batch(rows: int = 6) -> ReplayBatch:
    torch.manual_seed(0)
    return ReplayBatch(
        torch.randn(rows, 3), torch.rand(rows, 2) * 2 - 1, torch.randn(rows), torch.full((rows,), 0.9),
        torch.randn(rows, 3), torch.zeros(0, 1, 3), torch.ones(0, 1, dtype=torch.bool), rows,
    )  # fmt: skip


def distribute(model: SacAgent, observations: Tensor) -> TransformedDistribution:
    mean, log_std = model.actor(observations)
    return TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), [TanhTransform(cache_size=1)])


def test_densities_are_those_of_torch() -> None:
    model = make_task().build(SacConfig(mlp=(16,)))
    observations = torch.randn(50, 3)
    drawn = model.actor.sample(observations)
    wanted = distribute(model, observations).log_prob(drawn.actions.clamp(-1 + 1e-6, 1 - 1e-6))
    torch.testing.assert_close(drawn.log_density, wanted, rtol=1e-2, atol=1e-2)
    assert bool((drawn.actions.abs() <= 1).all())
    far = model.actor.sample(observations, torch.full((50, 2), 40.0))  # tanh is 1: no infinite density
    assert bool(far.log_density.isfinite().all())


def test_the_losses_are_the_equations() -> None:
    task, batch = make_task(), make_batch()
    model = task.build(SacConfig(mlp=(16,), temperature=0.3))
    with torch.no_grad():
        for weight in model.values.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    alpha = model.log_temperature.detach().exp()
    torch.manual_seed(1)
    following = model.actor.sample(batch.next_observations)
    now = model.actor.sample(batch.observations)
    target = model.evaluate_by_target(batch.next_observations, following.actions)
    y = batch.rewards + batch.discounts * (torch.minimum(*target.unbind(-1)) - alpha * following.log_density.detach())
    one, two = model.values(batch.observations, batch.actions).unbind(-1)
    critic = (one - y).square().sum() + (two - y).square().sum()
    parameters = list(model.values.parameters())
    critic_gradients = torch.autograd.grad(critic, parameters)
    actor = (alpha * now.log_density - model.values(batch.observations, now.actions).amin(-1)).sum()
    actor_gradients = torch.autograd.grad(actor, list(model.actor.parameters()))
    temperature = -(model.log_temperature.exp() * (now.log_density.detach() + -2.0)).sum()  # H = -2
    torch.manual_seed(1)
    loss = task.loss(model, batch, LossState())
    torch.testing.assert_close(loss.total, critic + actor + temperature)
    loss.total.backward()
    for weight, gradient in zip(parameters, critic_gradients, strict=True):  # the actor's loss trains no critic
        torch.testing.assert_close(weight.grad, gradient)
    for weight, gradient in zip(model.actor.parameters(), actor_gradients, strict=True):
        torch.testing.assert_close(weight.grad, gradient)
    wanted = torch.autograd.grad(
        -(model.log_temperature.exp() * (now.log_density.detach() - 2.0)).sum(), model.log_temperature
    )[0]
    torch.testing.assert_close(model.log_temperature.grad, wanted)


def test_a_temperature_is_tuned_only_if_it_should_be() -> None:
    for tuned in (True, False):
        task = make_task(tune_temperature=tuned)
        model = task.build(SacConfig(mlp=(16,)))
        task.loss(model, make_batch(), LossState()).total.backward()
        assert (model.log_temperature.grad is None) != tuned


def test_only_the_critic_trains_the_convolutions() -> None:
    model = SacConfig(
        observation=(3, 24, 24), actions=2, frame_encoder="curl", channels=4, features=8, mlp=(8,)
    ).build()
    frames = torch.rand(2, 3, 24, 24)
    flat = model.encoder.convolve(frames)
    model.actor.sample(flat.detach()).actions.sum().backward()
    assert all(weight.grad is None for weight in model.encoder.parameters())
    assert model.actor.projection[0].weight.grad is not None
    assert model.actor.projection[0].weight.data_ptr() != model.encoder.projection[0].weight.data_ptr()
