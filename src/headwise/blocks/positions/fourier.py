"""Fourier features of the positions of pixels (Jaegle et al. 2021, section 3.2)."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.stack import Positions
from headwise.errors import UserError


class FourierPlaces(nn.Module):
    """x + [y, x, sin(pi f y), sin(pi f x), cos(pi f y), cos(pi f x)] with y and x in [-1, 1] and `bands` frequencies f
    from 1 to half the grid's side, beyond which pixels could not tell them apart (Perceiver, section 3.2). Another grid
    is another sampling of the same waves."""

    def __init__(self, grid: tuple[int, int], bands: int = 64):
        super().__init__()
        self.grid, self.bands = grid, bands
        self.register_buffer("waves", self._waves(grid, None).to(torch.get_default_dtype()), persistent=False)
        self.waves: Tensor

    def forward(self, x: Tensor, pos: Tensor, grid: tuple[int, int]) -> Tensor:
        return x + (self.waves if grid == self.grid else self._waves(grid, x.device).to(x))

    def _waves(self, grid: tuple[int, int], device: torch.device | None) -> Tensor:
        exact: dict[str, Any] = {"dtype": torch.float64, "device": device}
        sides = [torch.linspace(-1, 1, side, **exact) for side in grid]
        places = torch.stack(torch.meshgrid(*sides, indexing="ij"), dim=-1).flatten(0, 1)  # (h, w, 2) -> (hw, 2)
        rates = [torch.linspace(1, side / 2, self.bands, **exact) for side in self.grid]
        angles = (math.pi * places.unsqueeze(-1) * torch.stack(rates)).flatten(1)  # (hw, 2, bands) -> (hw, 2 * bands)
        return torch.cat((places, angles.sin(), angles.cos()), dim=-1)


class FourierPositionsConfig(PositionConfig):
    """Coordinates of a pixel and `bands` sines and cosines of each, up to half the image's side: nothing is learned."""

    kind: Literal["fourier"] = "fourier"
    bands: int = Field(64, ge=1)

    @property
    def width(self) -> int:
        return 2 * (2 * self.bands + 1)

    def embedding(self, width: int) -> Positions:
        raise UserError("positions: 'fourier' is for images; texts have learned, sinusoid, rotary and others")

    def on_grid(self, width: int, grid: tuple[int, int], class_tokens: int) -> nn.Module:
        if width != self.width or class_tokens:
            raise UserError(
                f"positions: {self.bands} bands are {self.width} channels of each place, to stand beside its pixel; "
                "they cannot be added to patches and class_tokens; use grid"
            )
        return FourierPlaces(grid, self.bands)
