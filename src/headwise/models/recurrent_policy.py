"""Recurrent policies that are evolved, beside the Attention Agent: the same LSTM on convolutions of a frame, or on the
numbers of a state. The default size has about as many parameters as that agent (3,664 at 64 x 64 pixels), and as many
features: 20.

Small controllers that see features of frames are evolved by CMA-ES in Ha & Schmidhuber 2018, "World Models"; there the
features are learnt before, here everything is evolved.

Letters: B rows, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from headwise.blocks.controller import Controller, State, squash
from headwise.errors import UserError
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.utils.notebook import HtmlTree


class RecurrentPolicyConfig(ModelConfig):
    """`observation`, `actions` and `discrete` are those of the environment; the task sets them."""

    tasks = ("evolve",)
    kind: Literal["recurrent-policy"] = "recurrent-policy"
    observation: tuple[int, ...] = (3, 64, 64)  # numbers of a state, or channels, rows and columns of a frame
    actions: int = Field(3, ge=1)  # numbers of a continuous action, or discrete actions to choose from
    discrete: bool = False
    # of frames: channels, kernel and stride of each convolution
    convolutions: tuple[tuple[int, int, int], ...] = ((4, 7, 4), (4, 5, 2), (5, 3, 2))
    hidden: int = Field(16, ge=1)  # of the LSTM

    @field_validator("observation")
    @classmethod
    def _check_observation(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) not in (1, 3) or min(shape) < 1:
            raise ValueError("is the number of numbers of a state, or channels, rows and columns of a frame")
        return shape

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        return RecurrentPolicy(self)


def build_convolutions(config: RecurrentPolicyConfig) -> tuple[nn.Sequential, int]:
    """Convolutions with ReLU, and the number of features that they give."""
    channels, *sides = config.observation
    layers: list[nn.Module] = []
    for outputs, kernel, stride in config.convolutions:
        layers += [nn.Conv2d(channels, outputs, kernel, stride), nn.ReLU()]
        channels, sides = outputs, [(side - kernel) // stride + 1 for side in sides]
        if min(sides) < 1:
            rows, columns = config.observation[1:]
            raise UserError(
                f"model.convolutions: they leave nothing of frames of {rows} x {columns} pixels; choose smaller ones"
            )
    return nn.Sequential(*layers), channels * sides[0] * sides[1]


class RecurrentPolicy(HtmlTree, nn.Module):
    """Convolutions of a frame, or the numbers of a state, and an LSTM: a step of an episode.

    >>> policy = RecurrentPolicy(RecurrentPolicyConfig(observation=(7,)))
    >>> policy(torch.rand(2, 7), policy.start(2))[0].shape
    torch.Size([2, 3])
    """

    def __init__(self, config: RecurrentPolicyConfig):
        super().__init__()
        self.config = config
        self.convolutions, features = nn.Sequential(), config.observation[0]
        if len(config.observation) == 3:
            self.convolutions, features = build_convolutions(config)
        self.controller = Controller(features, config.hidden, config.actions)

    def start(self, rows: int) -> State:
        """The state at the beginning of an episode."""
        return self.controller.start(rows)

    def forward(self, observations: Tensor, state: State) -> tuple[Tensor, State]:
        """Frames (B, C, H, W), 0 to 1, or states (B, D) -> actions (B, A), and the state after."""
        outputs, state = self.controller(self.convolutions(observations).flatten(1), state)
        return squash(outputs, self.config.discrete), state

    def make_blank_inputs(self, rows: int, length: int, device: str = "meta") -> tuple[Tensor, State]:
        """Steps of zeros, to count costs: each is a row of its own."""
        zeros = torch.zeros(rows * length, self.config.hidden, device=device)
        return torch.zeros(rows * length, *self.config.observation, device=device), (zeros, zeros)


SIZES: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "tiny": {"observation": (3, 32, 32), "convolutions": ((4, 7, 4), (4, 5, 2)), "hidden": 8},
}

ENTRY = Entry(
    name="recurrent-policy",
    paper="Ha & Schmidhuber, World Models",
    year=2018,
    family="agents",
    config=RecurrentPolicyConfig,
    sizes=SIZES,
    vocab=0,
    checks=(
        Check(
            "torch.nn.LSTM on the same convolutions",
            "tests/models/test_recurrent_policy.py::test_an_episode_is_that_of_torch",
        ),
    ),
)
