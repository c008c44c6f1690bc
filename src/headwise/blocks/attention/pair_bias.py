"""Pair bias (Jumper et al. 2021, supplement, Algorithm 7, line 3): an attention bias from a pair representation.

Letters: B rows, P pair representations, H heads, T length, K width of the pair representation.
"""

from __future__ import annotations

from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionLayout, ScoreMod
from headwise.blocks.norm import LayerNorm


class PairBias(ScoreMod):
    """Pair bias: a linear map of the vector of each pair of tokens (`Stream.pair`), one number for each head. With
    `norm` it is taken of their layer norm."""

    def __init__(self, pair_width: int, heads: int, norm: bool = True):
        super().__init__()
        self.norm = LayerNorm(pair_width) if norm else nn.Identity()
        self.project = nn.Linear(pair_width, heads, bias=False)

    def bias(self, layout: AttentionLayout) -> Tensor:
        assert layout.pair is not None, "a pair bias needs a stream with pairs"
        bias = self.project(self.norm(layout.pair)).permute(0, 3, 1, 2)  # (P, T, T, K) -> (P, H, T, T)
        return bias if layout.rows_per_pair == 1 else bias.repeat_interleave(layout.rows_per_pair, dim=0)
