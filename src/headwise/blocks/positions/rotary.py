"""Rotary position embedding, RoPE (Su et al. 2021), with partial rotation and the scalings of `rope_scaling.py`.

Letters: B rows, H heads, T length, D channels of a head that are rotated.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.attention.score_mods import ScoreMod, ScoreModConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.rope_scaling import NoScalingConfig, RopeScalingConfig
from headwise.blocks.tables import AnyRopeScaling
from headwise.errors import UserError


class Rotary(ScoreMod):
    """Rotary position embedding (RoPE, Su et al. 2021): rotates each pair of channels by an angle that grows with the
    position, so that scores depend on distance alone. Channel i pairs with channel i + D/2.

    Partial rotation (`fraction` < 1) leaves the last channels of a head as they are.
    """

    needs_positions = True

    def __init__(
        self,
        head_width: int,
        base: float = 10_000.0,
        fraction: float = 1.0,
        scaling: RopeScalingConfig = NoScalingConfig(),  # noqa: B008  (a frozen value)
    ):
        super().__init__()
        self.base, self.scaling, self.scale = base, scaling, scaling.attention_factor
        self.exponents = int(
            head_width * fraction
        )  # as in transformers, an odd number is rotated with one channel more
        rates = scaling.frequencies(self.exponents, base)
        self.width = 2 * len(rates)
        self.rest = head_width - self.width
        if not 0 < self.width <= head_width:
            raise UserError(f"rotary: pairs of channels need an even head_width, not {head_width}; choose another")
        self.register_buffer("rates", rates.float(), persistent=False)
        self.rates: Tensor

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        rates = self.long_rates(pos) if self.scaling.limit else self.rates
        angles = pos.unsqueeze(-1) * rates  # (T, D/2) or (B, T, D/2)
        angles = angles if angles.dim() == 2 else angles.unsqueeze(1)  # (B, T, D/2) -> (B, 1, T, D/2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if self.scale != 1.0:
            cos, sin = cos * self.scale, sin * self.scale
        if not self.rest:
            x1, x2 = x.chunk(2, dim=-1)  # (B, H, T, D) -> 2 x (B, H, T, D/2)
            return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
        half = self.width // 2
        x1, x2, rest = x.split((half, half, self.rest), dim=-1)
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin, rest), dim=-1)

    edit_queries = edit_keys = rotate

    def long_rates(self, pos: Tensor) -> Tensor:
        """The inverse frequencies of texts that end at the last of these positions: (D/2,), or (B, 1, D/2)."""
        lengths = pos.amax(-1, keepdim=True) + 1  # (1,) or (B, 1)
        rates = self.scaling.long_frequencies(self.exponents, self.base, lengths).to(self.rates.dtype)
        rates = torch.where(lengths > self.scaling.limit, rates, self.rates)
        return rates if pos.dim() == 1 else rates.unsqueeze(1)


class RotaryConfig(ScoreModConfig):
    """Rotary position embedding, RoPE."""

    kind: Literal["rotary"] = "rotary"
    base: float = Field(10_000.0, gt=1)
    fraction: float = Field(1.0, gt=0, le=1)  # partial rotary: the share of a head's channels that is rotated
    scaling: AnyRopeScaling = NoScalingConfig()  # for texts longer than those of pretraining

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        return Rotary(head_width, self.base, self.fraction, self.scaling)
