"""Attention Agent (Tang, Nguyen & Ha 2020, "Neuroevolution of Self-Interpretable Agents").

A frame is cut into patches. One attention head compares all patches with all others; the importance of a patch is how
much attention it gets from all patches together, the sum of its column of the attention matrix. The centres of the K
most important patches, and nothing else of the frame, go to a small LSTM, which acts: the agent does not see colours or
shapes, only where it looks. Choosing patches has no gradient; the agent is trained by evolution. Reference: the
released code (google/brain-tokyo-workshop), with which the parameters agree in number and meaning.

    A = softmax((X W_q + b_q) (X W_k + b_k)^T / sqrt(d)),  importance_j = sum_i A_ij,  d = numbers of a patch

DISCREPANCY: the scores are divided by sqrt(d) of a patch (147), as published, not by that of a key (4). There are no
values. The linear maps of patches are convolutions with the same weights. Frames of another size are resized by
torch's antialiased bilinear interpolation, not by that of PIL, whose pixels differ by a 255th at most.

Letters: B rows, N patches, K patches that are kept, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.controller import Controller, State, squash
from headwise.errors import UserError
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.utils.notebook import HtmlTree


class AttentionAgentConfig(ModelConfig):
    """`observation`, `actions` and `discrete` are those of the environment; the task sets them."""

    tasks = ("evolve",)
    kind: Literal["attention-agent"] = "attention-agent"
    observation: tuple[int, int, int] = (3, 96, 96)  # channels, rows and columns of a frame
    actions: int = Field(3, ge=1)  # numbers of a continuous action, or discrete actions to choose from
    discrete: bool = False
    side: int = Field(96, ge=1)  # pixels to which rows and columns of frames are resized
    patch: int = Field(7, ge=1)  # pixels of the side of a patch
    stride: int = Field(4, ge=1)  # pixels from one patch to the next
    key_width: int = Field(4, ge=1)  # of queries and keys
    top: int = Field(10, ge=1)  # patches that are kept
    hidden: int = Field(16, ge=1)  # of the LSTM

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        if self.patch > self.side:
            raise UserError(
                f"model.patch: patches of {self.patch} pixels do not fit into frames of {self.side}; "
                "choose smaller ones, or a larger model.side"
            )
        count = self.patches_a_side**2
        if self.top > count:
            raise UserError(f"model.top: {self.top} patches cannot be kept of {count}; choose at most {count}")
        return AttentionAgent(self)

    @property
    def patches_a_side(self) -> int:
        return (self.side - self.patch) // self.stride + 1


class Look(NamedTuple):
    """Where an agent looks."""

    importance: Tensor  # (B, N): the attention that each patch gets, in sum N
    chosen: Tensor  # (B, K) numbers of patches, the most important first


class AttentionAgent(HtmlTree, nn.Module):
    """Attention Agent: a step of an episode.

    >>> agent = AttentionAgent(AttentionAgentConfig(top=4))
    >>> outputs, state = agent(torch.rand(2, 3, 96, 96), agent.start(2))
    >>> outputs.shape, agent.look(torch.rand(2, 3, 96, 96)).chosen.shape
    (torch.Size([2, 3]), torch.Size([2, 4]))
    """

    def __init__(self, config: AttentionAgentConfig):
        super().__init__()
        self.config = config
        channels, patch, stride = config.observation[0], config.patch, config.stride
        self.queries = nn.Conv2d(channels, config.key_width, patch, stride)
        self.keys = nn.Conv2d(channels, config.key_width, patch, stride)
        self.controller = Controller(2 * config.top, config.hidden, config.actions)
        self.scale = 1 / sqrt(channels * patch**2)
        along = patch // 2 + stride * torch.arange(config.patches_a_side)
        self.register_buffer("centres", torch.cartesian_prod(along, along) / config.side, persistent=False)  # (N, 2)

    def start(self, rows: int) -> State:
        """The state at the beginning of an episode."""
        return self.controller.start(rows)

    def look(self, frames: Tensor) -> Look:
        """Patch importance: rank the patches of frames (B, C, H, W)."""
        side = self.config.side
        if frames.shape[-2:] != (side, side):
            frames = F.interpolate(frames, (side, side), mode="bilinear", antialias=True)
        weight, bias = (
            torch.cat([getattr(part, name) for part in (self.queries, self.keys)]) for name in ("weight", "bias")
        )
        both = F.conv2d(frames, weight, bias, self.config.stride).flatten(-2).mT  # (B, N, 2 * key_width)
        queries, keys = both.chunk(2, -1)
        importance = (queries @ keys.mT * self.scale).softmax(-1).sum(-2)  # (B, N, N) -> (B, N)
        return Look(importance, importance.topk(self.config.top, -1).indices)

    def forward(self, frames: Tensor, state: State) -> tuple[Tensor, State]:
        """Frames (B, C, H, W), 0 to 1 -> actions (B, A), and the state after."""
        places = self.centres[self.look(frames).chosen].flatten(-2)  # type: ignore[index]  # (B, K, 2) -> (B, 2K)
        outputs, state = self.controller(places, state)
        return squash(outputs, self.config.discrete), state

    def make_blank_inputs(self, rows: int, length: int, device: str = "meta") -> tuple[Tensor, State]:
        """Steps of zeros, to count costs: each is a row of its own."""
        frames = torch.zeros(rows * length, *self.config.observation, device=device)
        zeros = torch.zeros(rows * length, self.config.hidden, device=device)
        return frames, (zeros, zeros)


SIZES: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "small": {"side": 64, "observation": (3, 64, 64)},  # frames of our worlds as they are
    "tiny": {"side": 32, "observation": (3, 32, 32), "top": 4, "hidden": 8},
}

ENTRY = Entry(
    name="attention-agent",
    paper="Tang et al., Neuroevolution of Self-Interpretable Agents",
    year=2020,
    family="agents",
    config=AttentionAgentConfig,
    sizes=SIZES,
    vocab=0,
    published={"base": "3,667"},
    checks=(
        Check(
            "the equations of the paper over single patches, and torch.nn.LSTM",
            "tests/models/test_attention_agent.py::test_a_step_is_the_equation",
        ),
    ),
)
