"""Relative positions and token types of Funnel-Transformer (Dai et al. 2020, "Funnel-Transformer: Filtering out
Sequential Redundancy for Efficient Language Processing").

Letters: B rows, H heads, D head_width, C width, Tq queries, Tk keys.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import QUERIES_AND_KEYS, AttentionInputs, AttentionLayout, ScoreMod
from headwise.blocks.part import BuildContext, ScoreModBuilder
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.positions.base import PositionConfig
from headwise.errors import UserError

ANY_TYPE = -1  # the token type of the first token, which belongs to every text


class FunnelRelative(ScoreMod):
    """Relative positions of Funnel-Transformer, as in Transformer-XL, and whether two tokens are of the same text:

        e_ij = ((q_i + u) k_j + (q_i + v) W PE(i - j) + (q_i + w) s[same_ij]) / sqrt(D)

    Each layer has its own u, v, w, W and s. Positions are any numbers, as pooled tokens are further apart:
    sin(i - j) and cos(i - j) are expanded into products of sines and cosines of i and j (appendix A.2.2), so that no
    table of distances is needed. With `separate_first`, the last two terms are 0 for the first token, as query and as
    key.
    """

    needs_positions = True
    reads = QUERIES_AND_KEYS

    def __init__(self, width: int, heads: int, head_width: int, separate_first: bool = True):
        super().__init__()
        self.separate_first = separate_first
        self.content, self.distance, self.type_bias = (
            nn.Parameter(torch.randn(heads, head_width) * 0.02) for _ in range(3)
        )  # u, v, w
        self.kernel = nn.Parameter(torch.randn(width, heads, head_width) * width**-0.5)  # W
        self.types = nn.Parameter(torch.randn(2, heads, head_width) * 0.02)  # s: of another text, of the same

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        layout, by_content = inputs.layout, self.content.unsqueeze(1) @ inputs.k.mT  # (B, H, 1, Tk)
        relative = self.score_distances(inputs) + self.score_types(inputs.q, layout)  # (B, H, Tq, Tk)
        if self.separate_first:
            assert layout.query_pos is not None and layout.key_pos is not None
            first = (layout.query_pos < 1).unsqueeze(-1) | (layout.key_pos < 1).unsqueeze(-2)
            relative = relative.masked_fill(layout.expand_heads(first), 0.0)
        return scores + inputs.scale * (by_content + relative)

    def score_distances(self, inputs: AttentionInputs) -> Tensor:
        """(q + v) W PE(i - j): (B, H, Tq, Tk)."""
        query_sin, query_cos = self.look_up_sinusoids(inputs, inputs.layout.query_pos)  # 2 x (Tq, C / 2)
        key_sin, key_cos = self.look_up_sinusoids(inputs, inputs.layout.key_pos)
        projected = (inputs.q + self.distance.unsqueeze(1)) @ self.kernel.permute(1, 2, 0)  # (B, H, Tq, C)
        of_sin, of_cos = projected.chunk(2, dim=-1)
        by_cos = (of_sin * query_sin + of_cos * query_cos) @ key_cos.mT
        return by_cos + (of_cos * query_sin - of_sin * query_cos) @ key_sin.mT

    def look_up_sinusoids(self, inputs: AttentionInputs, pos: Tensor | None) -> tuple[Tensor, Tensor]:
        """Sines and cosines of positions, computed once for all layers: 2 x (T, C / 2) or (B, 1, T, C / 2)."""
        assert pos is not None
        key = ("sinusoids", id(pos), len(self.kernel), inputs.q.dtype)
        if key not in inputs.shared:
            table = build_sinusoids(pos, len(self.kernel), halves=True).to(inputs.q.dtype)
            table = table if table.dim() == 2 else table.unsqueeze(1)
            inputs.shared[key] = (*table.chunk(2, dim=-1), pos)  # the positions stay alive, so that their id is theirs
        sin, cos, _ = inputs.shared[key]
        return sin, cos

    def score_types(self, q: Tensor, layout: AttentionLayout) -> Tensor:
        """(q + w) s[same]: (B, H, Tq, Tk). Without token types, all tokens are of the same text."""
        by_type = (q + self.type_bias.unsqueeze(1)) @ self.types.permute(1, 2, 0)  # (B, H, Tq, 2)
        if layout.query_types is None or layout.key_types is None:
            return by_type[..., 1:]
        queries, keys = layout.query_types.unsqueeze(-1), layout.key_types.unsqueeze(-2)
        same = (queries == keys) | (queries == ANY_TYPE) | (keys == ANY_TYPE)  # (B, Tq, Tk)
        return torch.where(same.unsqueeze(1), by_type[..., 1:], by_type[..., :1])


class FunnelRelativeConfig(PositionConfig):
    """Funnel-Transformer's relative positions and token types, of each layer its own."""

    kind: Literal["funnel"] = "funnel"
    separate_first: bool = True  # the first token has neither a position nor a type

    def make_score_mod_builder(self, build_ctx: BuildContext) -> ScoreModBuilder:
        if build_ctx.width % 2:
            raise UserError(f"width: {build_ctx.width} is odd, but there are as many sines as cosines; use an even one")
        return lambda heads, head_width: (FunnelRelative(build_ctx.width, heads, head_width, self.separate_first),)
