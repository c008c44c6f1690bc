"""ALiBi, attention with linear biases (Press et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Literal

import torch
from torch import Tensor

from headwise.blocks.attention.score_mods import AttentionLayout, ScoreMod, ScoreModConfig
from headwise.blocks.part import BuildContext


def compute_alibi_slopes(heads: int) -> list[float]:
    """ALiBi's slopes: 2^(-8/n), 2^(-16/n), ... for n heads; between powers of two, every other slope of the next power.

    >>> compute_alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    if power < heads:
        slopes += compute_alibi_slopes(2 * power)[0::2][: heads - power]
    return slopes


class Alibi(ScoreMod):
    """ALiBi: the attention bias -slope_h * |j - i| of head h (Press et al. 2022)."""

    needs_positions = True

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(compute_alibi_slopes(heads)), persistent=False)
        self.slopes: Tensor

    def key(self) -> Hashable:
        return "alibi", len(self.slopes)

    def bias(self, layout: AttentionLayout) -> Tensor:
        distance = layout.expand_heads(layout.compute_distance().abs())  # (Tq, Tk) or (B, 1, Tq, Tk)
        return -self.slopes[:, None, None] * distance  # (H, Tq, Tk) or (B, H, Tq, Tk)


class AlibiConfig(ScoreModConfig):
    """ALiBi: attention biases that grow with distance."""

    kind: Literal["alibi"] = "alibi"

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        return Alibi(build_ctx.heads)
