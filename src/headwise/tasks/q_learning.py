"""Deep Q-learning (Mnih et al. 2015), with double Q-learning (van Hasselt et al. 2016) and returns of n steps (Watkins
1989): discrete actions, learnt by acting.

    y = r_1 + γ r_2 + ... + γ^n Q'(s_n, argmax_a Q(s_n, a)),  loss = Huber(Q(s, a) - y)

with Q' the target network, which with `double = false` also chooses the action. DISCREPANCY: the paper cuts the error
to -1 ... 1 before it is squared; the Huber loss has the same gradient.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from headwise.blocks.evaluation import get_device
from headwise.blocks.losses import Loss, count_examples
from headwise.models.dqn import DqnAgent
from headwise.tasks.online import OnlineConfig, OnlineTask
from headwise.tasks.replay_source import ReplayBatch, draw_actions
from headwise.train.state import LossState


class QLearning(OnlineTask["QLearningConfig", DqnAgent]):
    """Deep Q-learning (DQN): values of discrete actions."""

    def get_epsilon(self, played: int) -> float:
        """The share of random actions after so many frames: from 1 to `epsilon`, linear over `explore` frames."""
        share = min(1.0, played / self.config.explore)
        return 1 + share * (self.config.epsilon - 1)

    @torch.no_grad()
    def explore(self, model: DqnAgent, observations: Tensor, played: int, random: np.random.Generator) -> np.ndarray:
        """ε-greedy actions."""
        count = len(observations)
        at_random = draw_actions(self.encoder.spaces, count, random)
        astray = random.random(count) < self.get_epsilon(played)
        best = model.act(self.view(observations.to(get_device(model)), training=False)).cpu().numpy()
        chosen: np.ndarray = np.where(astray, at_random, best)
        return chosen

    @torch.no_grad()
    def compute_targets(self, model: DqnAgent, batch: ReplayBatch) -> Tensor:
        """y, (B,)."""
        following = self.view(batch.next_observations, model.training)
        values = model.evaluate_by_target(following)  # (B, A)
        chosen = (model(following) if self.config.double else values).argmax(-1, keepdim=True)
        return batch.rewards + batch.discounts * values.gather(1, chosen).squeeze(1)

    def loss(self, model: DqnAgent, batch: ReplayBatch, state: LossState) -> Loss:
        features = model.encoder(self.view(batch.observations, model.training))
        q = model.values(features).gather(1, batch.actions[:, None]).squeeze(1)  # (B, A) -> (B,)
        error = F.smooth_l1_loss(q, self.compute_targets(model, batch), reduction="sum")
        total = error + self.compute_contrast(model, batch, features)
        return Loss(total, error.detach(), count_examples(q))


class QLearningConfig(OnlineConfig):
    """Deep Q-learning: discrete actions, learnt by acting."""

    task_class = QLearning
    actions = "discrete"
    kind: Literal["q-learning"] = "q-learning"
    double: bool = True
    epsilon: float = Field(0.05, ge=0, le=1)  # the share of random actions, in the end
    explore: int = Field(10_000, ge=1)  # frames until then
