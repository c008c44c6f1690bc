"""Rotary position embedding, RoPE (Su et al. 2021)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.attention.score_mods import ScoreMod, ScoreModConfig
from headwise.blocks.part import BuildContext
from headwise.errors import UserError


class Rotary(ScoreMod):
    """Rotary position embedding (RoPE, Su et al. 2021): rotates each pair of channels by an angle that grows with the
    position, so that scores depend on distance alone. Channel i pairs with channel i + D/2."""

    needs_positions = True

    def __init__(self, head_width: int, base: float = 10_000.0):
        super().__init__()
        rates = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
        self.register_buffer("rates", rates.float(), persistent=False)
        self.rates: Tensor

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        angles = pos.unsqueeze(-1) * self.rates  # (T, D/2) or (B, T, D/2)
        angles = angles if angles.dim() == 2 else angles.unsqueeze(1)  # (B, T, D/2) -> (B, 1, T, D/2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        x1, x2 = x.chunk(2, dim=-1)  # (B, H, T, D) -> 2 x (B, H, T, D/2)
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)


class RotaryConfig(ScoreModConfig):
    """Rotary position embedding, RoPE."""

    kind: Literal["rotary"] = "rotary"
    base: float = Field(10_000.0, gt=1)

    def build(self, site: BuildContext, head_width: int) -> ScoreMod:
        if head_width % 2:
            raise UserError(f"rotary: pairs of channels need an even head_width, not {head_width}; choose another")
        return Rotary(head_width, self.base)
