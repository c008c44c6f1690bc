"""Positions of the patches of an image."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.stack import Positions
from headwise.errors import UserError


class LearnedGridPositions(nn.Module):
    """A learned vector for each mark and each place of a grid; for another grid the places' vectors are interpolated
    (Dosovitskiy et al. 2021, section 3.2)."""

    def __init__(self, width: int, grid: tuple[int, int], class_tokens: int = 0, std: float = 0.0):
        super().__init__()
        self.grid, self.class_tokens, self.std = grid, class_tokens, std
        self.table = nn.Parameter(torch.randn(class_tokens + grid[0] * grid[1], width) * (std or 0.02))

    def forward(self, x: Tensor, pos: Tensor, grid: tuple[int, int]) -> Tensor:
        return x + (self.table if grid == self.grid else resized(self.table, self.class_tokens, self.grid, grid))


def resized(table: Tensor, class_tokens: int, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """The vectors of a grid's places for another grid, by bicubic interpolation; those of class_tokens stay.

    >>> resized(torch.ones(5, 3), 1, (2, 2), (3, 4)).shape
    torch.Size([13, 3])
    """
    places = table[class_tokens:].view(1, *old, -1).permute(0, 3, 1, 2)  # (hw, D) -> (1, D, h, w)
    places = F.interpolate(places, new, mode="bicubic", align_corners=False)
    return torch.cat((table[:class_tokens], places.flatten(2)[0].t()))


class LearnedGridPositionsConfig(PositionConfig):
    """A learned vector for each place of an image's grid, interpolated for another grid."""

    kind: Literal["grid"] = "grid"
    std: float = Field(0.0, ge=0)  # what the vectors begin with; 0: what all weights do, 0.02 or little more

    def embedding(self, width: int) -> Positions:
        raise UserError("positions: 'grid' is of images; texts have learned, sinusoid, rotary and others")

    def on_grid(self, width: int, grid: tuple[int, int], class_tokens: int) -> nn.Module:
        return LearnedGridPositions(width, grid, class_tokens, self.std)
