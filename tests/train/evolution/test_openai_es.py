"""OpenAI's evolution strategy: its estimate of the gradient, and Adam as in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.train.evolution.openai_es import OpenAIES, OpenAIESConfig, rank_losses


def test_the_estimate_is_the_gradient_of_a_linear_loss():
    """E[u eps] of a linear loss has its direction."""
    slope = np.array([3.0, -1.0, 0.5])
    config = OpenAIESConfig(population=20000, sigma=0.01)
    strategy = OpenAIES(np.ones(3), config)
    members = strategy.ask(np.random.default_rng(0))
    gradients = []
    strategy.take_step = lambda gradient, rate: gradients.append(gradient)  # type: ignore[method-assign]
    strategy.tell(members, members @ slope, 0.1)
    direction = gradients[0] / np.linalg.norm(gradients[0])
    np.testing.assert_allclose(direction, slope / np.linalg.norm(slope), atol=0.02)


def test_members_are_pairs_around_the_mean():
    members = OpenAIES(np.ones(3), OpenAIESConfig(population=8)).ask(np.random.default_rng(0))
    np.testing.assert_allclose(members[:4] + members[4:], 2)
    with pytest.raises(UserError, match="even number"):
        validate(OpenAIESConfig, {"population": 9}, "x")


def test_steps_are_those_of_adam():
    strategy = OpenAIES(np.ones(4), OpenAIESConfig())
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    oracle = torch.optim.Adam([weight], lr=0.03)
    for step in range(20):
        gradient = np.random.default_rng(step).standard_normal(4)
        strategy.take_step(gradient, 0.03)
        weight.grad = torch.from_numpy(gradient)
        oracle.step()
    np.testing.assert_allclose(strategy.mean, weight.detach().numpy(), rtol=1e-12)


def test_finds_the_lowest_point_whatever_the_scale_of_the_loss():
    for scale in (1.0, 1e6):
        strategy = OpenAIES(np.zeros(5), OpenAIESConfig(population=40))
        for generation in range(400):
            members = strategy.ask(np.random.default_rng([1, generation]))
            strategy.tell(members, scale * ((members - 1) ** 2).sum(1), 0.05 * (1 - generation / 400))
        np.testing.assert_allclose(strategy.mean, 1, atol=0.02)


def test_ranks_are_centred():
    assert rank_losses(np.array([5.0, 1.0, 9.0, 2.0])).sum() == pytest.approx(0)
