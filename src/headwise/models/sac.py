"""Soft actor-critic (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications"): a Gaussian policy squashed
by tanh, two networks of values, and a temperature that is learnt. The loss is in `tasks/soft_actor_critic`.

From frames, the policy shares the convolutions of the critic and has a projection of its own, as in CURL's released
code; only the critic's loss trains the convolutions. `base` has the published networks for states (two hidden layers of
256; the state and the actions of HalfCheetah), `pixels` those of CURL.

DISCREPANCY: log σ is bounded by tanh to -10 ... 2, as in CURL's code; that of the authors cuts it to -20 ... 2.

Letters: B rows, C features, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.models.agent_fields import Agent, AgentFields, build_mlp, finish
from headwise.models.entry import Check, Entry

LOG_STD = (-10.0, 2.0)


class PolicySample(NamedTuple):
    """Drawn actions (B, A) from -1 to 1, and the logarithms of their densities (B,)."""

    actions: Tensor
    log_density: Tensor


class Actor(nn.Module):
    """The policy: a = tanh(μ + σ ε). It has a projection of the critic's convolutions of its own."""

    def __init__(self, projection: nn.Module, network: nn.Module):
        super().__init__()
        self.projection, self.network = projection, network

    def forward(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """What the convolutions left -> μ and log σ, (B, A) each."""
        mean, spread = self.network(self.projection(flat)).chunk(2, dim=-1)
        low, high = LOG_STD
        return mean, low + 0.5 * (high - low) * (torch.tanh(spread) + 1)

    def sample(self, flat: Tensor, noise: Tensor | None = None) -> PolicySample:
        """Draw actions by reparameterisation. log π(a) = log N(u; μ, σ) - Σ log(1 - tanh(u)²) with a = tanh(u), the
        last in the form 2 (log 2 - u - softplus(-2u)), which does not overflow."""
        mean, log_std = self(flat)
        noise = torch.randn_like(mean) if noise is None else noise
        raw = mean + log_std.exp() * noise
        normal = -0.5 * noise.square() - log_std - 0.5 * log(2 * torch.pi)
        squash = 2 * (log(2) - raw - F.softplus(-2 * raw))
        return PolicySample(torch.tanh(raw), (normal - squash).sum(-1))


class TwinValues(nn.Module):
    """Two networks of Q(s, a), of whose values the lower one is used (clipped double Q-learning)."""

    def __init__(self, inputs: int, hidden: tuple[int, ...]):
        super().__init__()
        self.one, self.two = build_mlp(inputs, hidden, 1), build_mlp(inputs, hidden, 1)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """(B, C) and (B, A) -> (B, 2)."""
        x = torch.cat((features, actions), dim=-1)
        return torch.cat((self.one(x), self.two(x)), dim=-1)


class SacAgent(Agent):
    """Soft actor-critic.

    >>> agent = ENTRY.configure("tiny").build()
    >>> agent(torch.zeros(3, 3)).shape
    torch.Size([3, 1])
    """

    def __init__(self, config: AgentFields, temperature: float):
        encoder = config.build_encoder()
        values = TwinValues(encoder.width + config.actions, config.mlp)
        super().__init__(config, encoder, values)
        network = build_mlp(encoder.width, config.mlp, 2 * config.actions)
        self.actor = Actor(config.build_projection(encoder.flat), network)
        self.log_temperature = nn.Parameter(torch.tensor(log(temperature)))

    def forward(self, observations: Tensor) -> Tensor:
        """The policy without noise: (B, ...) -> (B, A)."""
        mean, _ = self.actor(self.encoder.convolve(observations))
        return torch.tanh(mean)


class SacConfig(AgentFields):
    tasks = ("soft-actor-critic",)
    kind: Literal["sac"] = "sac"
    observation: tuple[int, ...] = (17,)
    actions: int = Field(6, ge=1)
    discrete: bool = False
    mlp: tuple[int, ...] = (256, 256)
    temperature: float = Field(0.1, gt=0)  # at first

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> SacAgent:
        self.resolve_task(task)
        agent: SacAgent = finish(self, SacAgent(self, self.temperature))
        return agent


PIXELS: dict[str, Any] = {"frame_encoder": "curl", "features": 50, "observation": (9, 84, 84), "mlp": (1024, 1024)}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "pixels": PIXELS,
    "tiny": {"observation": (3,), "actions": 1, "mlp": (32, 32)},
}

ENTRY = Entry(
    name="sac",
    paper="Haarnoja et al., Soft Actor-Critic Algorithms and Applications",
    year=2018,
    family="agents",
    config=SacConfig,
    sizes=SIZES,
    vocab=0,
    checks=(
        Check(
            "the linear-quadratic regulator, by the Riccati equation",
            "tests/tasks/test_soft_actor_critic.py::test_sac_finds_the_gain_of_the_riccati_equation",
        ),
        Check(
            "torch.distributions and the losses, written out",
            "tests/tasks/test_soft_actor_critic.py::test_the_losses_are_the_equations",
            "torch",
        ),
    ),
)
