"""Positions that are concatenated with token embeddings instead of added: W [x; p].

Adding is the special case in which both have one width and W = [1 1]; concatenated, tokens and positions have channels
of their own, and W learns how to mix them.

Letters: B rows, T length, C width, P channels of positions.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.positions.absolute import SinusoidalPositionsConfig
from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.stack import Positions
from headwise.blocks.tables import AnyPosition
from headwise.errors import UserError


class ConcatenatedPositions(Positions):
    """Concatenated position embedding: W [x; p], with p the vector of P channels that `positions` would add."""

    adds_vectors = False

    def __init__(self, width: int, position_width: int, positions: Positions):
        super().__init__()
        self.position_width, self.positions, self.max_length = position_width, positions, positions.max_length
        self.project = nn.Linear(width + position_width, width, bias=False)

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        vectors = self.positions(x.new_zeros(*x.shape[:-1], self.position_width), pos, start)  # (B, T, P)
        return self.project(torch.cat((x, vectors), dim=-1))  # (B, T, C + P) -> (B, T, C)


class ConcatenatedPositionsConfig(PositionConfig):
    """Absolute `positions` of `width` channels, concatenated with token embeddings; 0: as many as the embeddings."""

    kind: Literal["concatenated"] = "concatenated"
    positions: AnyPosition = SinusoidalPositionsConfig()
    width: int = Field(0, ge=0)

    def build_positions(self, width: int) -> Positions:
        position_width = self.width or width
        positions = self.positions.build_positions(position_width)
        if not positions.adds_vectors:
            raise UserError(
                f"positions.positions: '{self.positions.kind}' adds no vectors that could be concatenated; "
                "use sinusoid, learned or axial"
            )
        return ConcatenatedPositions(width, position_width, positions)
