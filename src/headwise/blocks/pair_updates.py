"""Updates of a pair representation: triangle multiplication and attention, outer product mean (Jumper et al. 2021,
supplement, Algorithms 10 to 14).

A pair representation z (B, L, L, K) has a vector for each edge from residue i to residue j. An edge is updated from the
two others of every triangle that it is part of, so that distances become consistent.

Letters: B proteins, S rows of an alignment, L residues, C width of the alignment, K width of the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headwise.blocks.attention.gated import GatedAttention
from headwise.blocks.attention.multihead import SelfProjection
from headwise.blocks.attention.pair_bias import PairBias
from headwise.blocks.axial import attend_along_rows
from headwise.blocks.norm import LayerNorm
from headwise.blocks.stream import Context

MAX_PRODUCTS = 2**25  # numbers of outer products at once, without gradients


class TriangleMultiplication(nn.Module):
    """Triangle multiplication, the multiplicative update of Algorithms 11 and 12:

        z_ij <- sigmoid(W_g z_ij) * W_o norm(sum_k a_ik b_jk)     with outgoing edges
        z_ij <- sigmoid(W_g z_ij) * W_o norm(sum_k a_ki b_kj)     with incoming edges

    where a and b are gated projections of z, and zero where an edge is masked.
    """

    def __init__(self, width: int, hidden: int, outgoing: bool):
        super().__init__()
        self.equation = "bikc,bjkc->bijc" if outgoing else "bkic,bkjc->bijc"
        self.norm = LayerNorm(width)
        self.project = nn.Linear(width, 2 * hidden)  # a, then b
        self.project_gate = nn.Linear(width, 2 * hidden)
        self.hidden_norm = LayerNorm(hidden)
        self.out = nn.Linear(hidden, width)
        self.gate = nn.Linear(width, width)

    def forward(self, z: Tensor, keep: Tensor | None) -> Tensor:
        """Pairs (B, L, L, K) and their mask (B, L, L) -> (B, L, L, K)."""
        z = self.norm(z)
        edges = self.project_gate(z).sigmoid() * self.project(z)  # (B, L, L, 2 hidden)
        if keep is not None:
            edges = edges * keep.unsqueeze(-1)
        a, b = edges.chunk(2, dim=-1)
        return self.gate(z).sigmoid() * self.out(self.hidden_norm(torch.einsum(self.equation, a, b)))


class TriangleAttention(nn.Module):
    """Triangle attention, gated self-attention of the edges that share their first residue (around the starting node,
    Algorithm 13) or their last one (around the ending node, Algorithm 14); the third edge is the bias."""

    def __init__(self, width: int, heads: int, head_width: int, starting: bool):
        super().__init__()
        self.starting = starting
        self.norm = LayerNorm(width)
        self.attention = GatedAttention(
            width,
            heads,
            qkv=SelfProjection(width, heads, head_width, bias=False),
            head_width=head_width,
            score_mods=(PairBias(width, heads, norm=False),),
        )

    def forward(self, z: Tensor, keep: Tensor | None, ctx: Context) -> Tensor:
        """Pairs (B, L, L, K) and their mask (B, L, L) -> (B, L, L, K)."""
        z = self.norm(z)
        if self.starting:
            return attend_along_rows(self.attention, z, keep, ctx, pair=z)
        z, keep = z.transpose(1, 2), None if keep is None else keep.transpose(1, 2)
        return attend_along_rows(self.attention, z, keep, ctx, pair=z).transpose(1, 2)


class OuterProductMean(nn.Module):
    """Outer product mean (Algorithm 10), the alignment's update of the pairs: W_o flatten(mean_s(a_si x b_sj)), over
    rows in which both residues are real."""

    EPSILON = 1e-3

    def __init__(self, width: int, hidden: int, pair_width: int):
        super().__init__()
        self.norm = LayerNorm(width)
        self.project = nn.Linear(width, 2 * hidden)  # a, then b
        self.out = nn.Linear(hidden * hidden, pair_width)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """Table (B, S, L, C) and its mask (B, S, L) -> pairs (B, L, L, K)."""
        real = x.new_ones(x.shape[:-1]) if keep is None else keep.to(x.dtype)
        a, b = (self.project(self.norm(x)) * real.unsqueeze(-1)).chunk(2, dim=-1)  # 2 x (B, S, L, hidden)
        count = torch.einsum("bsi,bsj->bij", real, real).unsqueeze(-1)
        return torch.cat([self.multiply(part, b) for part in self.split(a)], dim=1) / (count + self.EPSILON)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """W_o of the sum of outer products over rows: (B, S, I, hidden) and (B, S, L, hidden) -> (B, I, L, K)."""
        return self.out(torch.einsum("bsic,bsjd->bijcd", a, b).flatten(-2))

    def split(self, a: Tensor) -> Sequence[Tensor]:
        """All residues at once or, without gradients, as many as `MAX_PRODUCTS` allows."""
        size = MAX_PRODUCTS // max(len(a) * a.shape[2] * a.shape[3] ** 2, 1)
        return (a,) if torch.is_grad_enabled() else a.split(max(size, 1), dim=2)
