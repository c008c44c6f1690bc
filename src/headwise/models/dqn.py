"""DQN (Mnih et al. 2015, "Human-level control through deep reinforcement learning"): a network with a value for each
action, trained by Q-learning. Reference: the paper's text and extended data table 1; the loss is in `tasks/q_learning`.

`base` is the published network for four frames of 84 x 84 pixels and the 18 actions of Atari. `pixels` has the encoder
of CURL, so that the two can be compared, `states` reads numbers.

Letters: B rows, C features, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from headwise.models.agent_fields import Agent, AgentFields, build_mlp, finish
from headwise.models.entry import Check, Entry


class DqnAgent(Agent):
    """Q-learning: the value of each action, Q(s, a), of which the highest is taken.

    >>> import torch
    >>> agent = ENTRY.configure("tiny").build()
    >>> agent(torch.zeros(2, 3, 42, 42)).shape
    torch.Size([2, 3])
    """

    def __init__(self, config: AgentFields):
        encoder = config.build_encoder()
        values = build_mlp(encoder.width, config.mlp, config.actions)
        super().__init__(config, encoder, values)

    def forward(self, observations: Tensor) -> Tensor:
        """(B, ...) -> Q (B, A)."""
        q: Tensor = self.values(self.encoder(observations))
        return q

    def act(self, observations: Tensor) -> Tensor:
        actions: Tensor = self(observations).argmax(-1)
        return actions


class DqnConfig(AgentFields):
    tasks = ("q-learning",)
    kind: Literal["dqn"] = "dqn"

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> DqnAgent:
        self.resolve_task(task)
        agent: DqnAgent = finish(self, DqnAgent(self))
        return agent


PIXELS: dict[str, Any] = {"frame_encoder": "curl", "features": 50}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "base": {"actions": 18},
    "pixels": {**PIXELS, "observation": (9, 84, 84), "mlp": (1024, 1024)},
    "states": {"observation": (4,), "actions": 2, "mlp": (64, 64)},
    "tiny": {**PIXELS, "observation": (3, 42, 42), "actions": 3, "channels": 8, "features": 16, "mlp": (32,)},
}

ENTRY = Entry(
    name="dqn",
    paper="Mnih et al., Human-level control through deep reinforcement learning",
    year=2015,
    family="agents",
    config=DqnConfig,
    sizes=SIZES,
    vocab=0,
    checks=(
        Check(
            "value iteration of a tabular Markov decision process",
            "tests/tasks/test_q_learning.py::test_dqn_finds_the_values_of_value_iteration",
        ),
        Check(
            "targets of double and n-step Q-learning, written out",
            "tests/tasks/test_q_learning.py::test_the_loss_is_the_equation",
        ),
    ),
)
