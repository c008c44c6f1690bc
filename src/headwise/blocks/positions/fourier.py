"""Fourier features of pixel positions (Perceiver, Jaegle et al. 2021, section 3.2)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.stack import Positions
from headwise.errors import UserError


class FourierPositions(nn.Module):
    """Fourier features: x + [y, x, sin(pi f y), sin(pi f x), cos(pi f y), cos(pi f x)] with y and x in [-1, 1] and
    `bands` frequencies f from 1 to half the grid's side, the Nyquist frequency. Another grid samples the same
    functions."""

    def __init__(self, grid: tuple[int, int], bands: int = 64):
        super().__init__()
        self.grid, self.bands = grid, bands
        self.register_buffer("waves", self._build_features(grid, None).to(torch.get_default_dtype()), persistent=False)
        self.waves: Tensor

    def forward(self, x: Tensor, pos: Tensor, grid: tuple[int, int]) -> Tensor:
        return x + (self.waves if grid == self.grid else self._build_features(grid, x.device).to(x))

    def _build_features(self, grid: tuple[int, int], device: torch.device | None) -> Tensor:
        def space(start: float, end: float, steps: int) -> Tensor:
            # transformers replaces `torch.linspace` by one that ignores the default device
            return torch.linspace(start, end, steps, dtype=torch.float64, device=device or torch.get_default_device())

        axes = [space(-1, 1, side) for side in grid]
        points = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, 1)  # (h, w, 2) -> (hw, 2)
        frequencies = torch.stack([space(1, side / 2, self.bands) for side in self.grid])  # (2, bands)
        angles = (math.pi * points.unsqueeze(-1) * frequencies).flatten(1)  # (hw, 2, bands) -> (hw, 2 * bands)
        return torch.cat((points, angles.sin(), angles.cos()), dim=-1)


class FourierPositionsConfig(PositionConfig):
    """Fourier features: coordinates of a pixel and `bands` sines and cosines of each; without parameters."""

    kind: Literal["fourier"] = "fourier"
    bands: int = Field(64, ge=1)

    @property
    def width(self) -> int:
        return 2 * (2 * self.bands + 1)

    def build_positions(self, width: int) -> Positions:
        raise UserError("positions: 'fourier' is for images; texts have learned, sinusoid, rotary and others")

    def build_grid_positions(self, width: int, grid: tuple[int, int], class_tokens: int) -> nn.Module:
        if width != self.width or class_tokens:
            raise UserError(
                f"positions: {self.bands} bands are {self.width} channels for each pixel, which cannot be added to "
                "patches and class tokens; use 'grid'"
            )
        return FourierPositions(grid, self.bands)
