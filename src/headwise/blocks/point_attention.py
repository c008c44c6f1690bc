"""Invariant point attention (Jumper et al. 2021, supplement, Algorithm 22).

Each residue has a frame. Queries, keys and values are vectors and, in the local coordinates of the frame, points, which
are compared in global coordinates, by their distance, and read back in local ones: a rigid motion of all frames changes
nothing.

Letters: B proteins, L residues, C width, K width of the pairs, H heads, D head_width, Q query points, V value points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import ApproximateMap
from headwise.blocks.stream import Context
from headwise.proteins.frames import Frames

EPSILON = 1e-8


@dataclass(frozen=True)
class PointAttentionSizes:
    """Heads of an invariant point attention, with the width and the points of each."""

    heads: int = 12
    head_width: int = 16
    query_points: int = 4
    value_points: int = 8


class InvariantPointAttention(nn.Module):
    """Invariant point attention (IPA, Algorithm 22). The scores of a head are

        sqrt(1/3) (q_i k_j / sqrt(D) + b_ij - softplus(head_weights)/2 sqrt(2 / (9 Q)) sum_p |T_i q_ip - T_j k_jp|^2)

    and the output is a linear map of four sums under these weights: values, value points in the coordinates of residue
    i, their distances from its origin, and pairs. DISCREPANCY: as in the released code, projections have biases.
    """

    def __init__(self, width: int, pair_width: int, sizes: PointAttentionSizes):
        super().__init__()
        self.sizes, heads, points = sizes, sizes.heads, sizes.value_points
        self.project = nn.Linear(width, 3 * heads * sizes.head_width)  # queries, keys, values
        self.project_points = nn.Linear(width, 3 * heads * (2 * sizes.query_points + points))  # in the same order
        self.pair_bias = nn.Linear(pair_width, heads)
        self.head_weights = nn.Parameter(torch.full((heads,), math.log(math.e - 1)))  # softplus gives 1
        self.out = nn.Linear(heads * (sizes.head_width + 4 * points + pair_width), width)

    def forward(self, s: Tensor, z: Tensor, frames: Frames, keep: Tensor | None, ctx: Context | None = None) -> Tensor:
        """Residues (B, L, C), pairs (B, L, L, K), frames (B, L) and the mask (B, L) -> (B, L, C)."""
        ctx = ctx if ctx is not None else Context()
        heads, width = self.sizes.heads, self.sizes.head_width
        q, k, v = self.project(s).unflatten(-1, (3, heads, width)).unbind(-3)  # 3 x (B, L, H, D)
        local = self.project_points(s).unflatten(-1, (heads, -1, 3))  # (B, L, H, 2Q + V, 3)
        points = frames.unsqueeze(-1).unsqueeze(-1).apply(local)
        count = self.sizes.query_points
        q_points, k_points, v_points = points.split((count, count, self.sizes.value_points), dim=-2)
        scores = torch.einsum("bihd,bjhd->bijh", q, k) / math.sqrt(width) + self.pair_bias(z)
        scores = math.sqrt(1 / 3) * (scores - self.weigh_distances(q_points, k_points))
        if keep is not None:
            scores = scores.masked_fill(~keep[:, None, :, None], torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=2)  # (B, L, L, H), over the keys j
        ctx.record.observe(ctx.path, ApproximateMap(lambda: weights.permute(0, 3, 1, 2)))  # (B, H, L, L)
        values = torch.einsum("bijh,bjhd->bihd", weights, v)
        means = torch.einsum("bijh,bjhpx->bihpx", weights, v_points)
        back = frames.unsqueeze(-1).unsqueeze(-1).apply_inverse(means)  # (B, L, H, V, 3)
        distances = (back.square().sum(-1) + EPSILON).sqrt()  # (B, L, H, V)
        pairs = torch.einsum("bijh,bijk->bihk", weights, z)
        return self.out(torch.cat([x.flatten(2) for x in (values, back, distances, pairs)], dim=-1))

    def weigh_distances(self, q_points: Tensor, k_points: Tensor) -> Tensor:
        """The term of the points in the scores: 2 x (B, L, H, Q, 3) -> (B, L, L, H)."""
        squares = (q_points.unsqueeze(2) - k_points.unsqueeze(1)).square().sum((-1, -2))  # (B, L, L, H)
        return 0.5 * math.sqrt(2 / (9 * self.sizes.query_points)) * F.softplus(self.head_weights) * squares
