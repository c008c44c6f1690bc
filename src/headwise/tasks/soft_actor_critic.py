"""Soft actor-critic (Haarnoja et al. 2018): continuous actions, learnt by acting.

    y = r + γ (min_i Q'_i(s', a') - α log π(a'|s')),  a' from π
    critic: Σ_i (Q_i(s, a) - y)²      actor: α log π(a|s) - min_i Q_i(s, a), a from π
    temperature: -α (log π(a|s) + H), H the target entropy, minus the number of actions

The three are one loss with stopped gradients, and one optimiser trains all: each has parameters of its own. As in the
authors' code, which runs the three updates at once, the actor is compared by the critic before its update.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device
from headwise.blocks.losses import Loss, count_examples
from headwise.models.sac import SacAgent
from headwise.tasks.online import OnlineConfig, OnlineTask
from headwise.tasks.replay_source import ReplayBatch
from headwise.train.state import LossState


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """What is computed inside trains no parameter of the module."""
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    for weight in trained:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trained:
            weight.requires_grad_(True)


class SoftActorCritic(OnlineTask["SoftActorCriticConfig", SacAgent]):
    """A policy of continuous actions with high values and high entropy."""

    @torch.no_grad()
    def explore(self, model: SacAgent, observations: Tensor, played: int, random: np.random.Generator) -> np.ndarray:
        """Actions that are drawn from the policy."""
        seen = self.view(observations.to(get_device(model)), training=False)
        noise = random.standard_normal((len(seen), self.encoder.spaces.actions)).astype(np.float32)
        drawn = model.actor.sample(model.encoder.convolve(seen), torch.from_numpy(noise).to(seen.device))
        actions: np.ndarray = drawn.actions.cpu().numpy()
        return actions

    @torch.no_grad()
    def compute_targets(self, model: SacAgent, batch: ReplayBatch) -> Tensor:
        """y, (B,)."""
        following = self.view(batch.next_observations, model.training)
        drawn = model.actor.sample(model.encoder.convolve(following))
        values = model.evaluate_by_target(following, drawn.actions).amin(-1)  # (B, 2) -> (B,)
        soft = values - model.log_temperature.exp() * drawn.log_density
        return batch.rewards + batch.discounts * soft

    def loss(self, model: SacAgent, batch: ReplayBatch, state: LossState) -> Loss:
        targets = self.compute_targets(model, batch)
        flat = model.encoder.convolve(self.view(batch.observations, model.training))
        features = model.encoder.projection(flat)
        critic = (model.values(features, batch.actions) - targets[:, None]).square().sum()
        drawn, temperature = model.actor.sample(flat.detach()), model.log_temperature.exp()
        with frozen(model.values):
            values = model.values(features.detach(), drawn.actions).amin(-1)  # (B, 2) -> (B,)
        total = critic + (temperature.detach() * drawn.log_density - values).sum()
        if self.config.tune_temperature:
            surplus = drawn.log_density.detach() - self.encoder.spaces.actions  # log π + H
            total = total - (temperature * surplus).sum()
        total = total + self.compute_contrast(model, batch, features)
        return Loss(total, critic.detach(), count_examples(targets))


class SoftActorCriticConfig(OnlineConfig):
    """Soft actor-critic: continuous actions, learnt by acting."""

    task_class = SoftActorCritic
    actions = "continuous"
    kind: Literal["soft-actor-critic"] = "soft-actor-critic"
    tune_temperature: bool = True  # else it stays that of the model
