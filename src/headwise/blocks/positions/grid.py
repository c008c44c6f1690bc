"""Learned position embedding of image patches."""

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
    """Learned position embedding of a grid: a vector for each class token and each patch; for another grid those of
    patches are interpolated (Dosovitskiy et al. 2021, section 3.2)."""

    def __init__(
        self, width: int, grid: tuple[int, int], class_tokens: int = 0, std: float = 0.0, antialias: bool = False
    ):
        super().__init__()
        self.grid, self.class_tokens, self.std, self.antialias = grid, class_tokens, std, antialias
        self.table = nn.Parameter(torch.randn(class_tokens + grid[0] * grid[1], width) * (std or 0.02))

    def forward(self, x: Tensor, pos: Tensor, grid: tuple[int, int]) -> Tensor:
        if grid == self.grid:
            return x + self.table
        return x + interpolate_positions(self.table, self.class_tokens, self.grid, grid, self.antialias)


def interpolate_positions(
    table: Tensor, class_tokens: int, old: tuple[int, int], new: tuple[int, int], antialias: bool = False
) -> Tensor:
    """Resize the position vectors of a grid to another grid by bicubic interpolation; those of class tokens stay.

    >>> interpolate_positions(torch.ones(5, 3), 1, (2, 2), (3, 4)).shape
    torch.Size([13, 3])
    """
    patches = table[class_tokens:].view(1, *old, -1).permute(0, 3, 1, 2)  # (hw, C) -> (1, C, h, w)
    patches = F.interpolate(patches, new, mode="bicubic", align_corners=False, antialias=antialias)
    return torch.cat((table[:class_tokens], patches.flatten(2)[0].t()))  # (1, C, h', w') -> (h'w', C)


class LearnedGridPositionsConfig(PositionConfig):
    """A learned vector for each patch of an image, interpolated for another grid."""

    kind: Literal["grid"] = "grid"
    std: float = Field(0.0, ge=0)  # of the initial vectors; 0: as all weights, 0.02 or little more
    antialias: bool = False  # in the interpolation, as in DINOv2 with registers

    def build_positions(self, width: int) -> Positions:
        raise UserError("positions: 'grid' is for images; texts have learned, sinusoid, rotary and others")

    def build_grid_positions(self, width: int, grid: tuple[int, int], class_tokens: int) -> nn.Module:
        return LearnedGridPositions(width, grid, class_tokens, self.std, self.antialias)
