"""The Evoformer of AlphaFold 2 (Jumper et al. 2021, supplement, Algorithms 6, 16 and 18): blocks that update an
alignment and a pair representation from each other.

Letters: B proteins, S rows of an alignment, L residues, C width of the alignment, K width of the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headwise.blocks.axial import ColumnAttention, GlobalColumnAttention, RowAttention, SharedDropout
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm
from headwise.blocks.pair_updates import OuterProductMean, TriangleAttention, TriangleMultiplication
from headwise.blocks.stream import Context

ROWS, COLUMNS = 1, 2  # axes along which a dropout mask is shared


@dataclass(frozen=True)
class PairSizes:
    """Sizes of the updates of a pair representation."""

    width: int = 128
    heads: int = 4
    head_width: int = 32
    expand: int = 4
    dropout: float = 0.25
    triangles: bool = True  # else an ablation: the transition alone


@dataclass(frozen=True)
class MsaSizes:
    """Sizes of the updates of an alignment, and of its outer product mean."""

    width: int = 256
    heads: int = 8
    head_width: int = 32
    expand: int = 4
    outer_width: int = 32
    dropout: float = 0.15
    global_columns: bool = False


class TokenTransition(nn.Module):
    """Transition (Algorithms 9 and 15): a feed-forward network with ReLU of the layer norm, `expand` times as wide."""

    def __init__(self, width: int, expand: int):
        super().__init__()
        self.norm = LayerNorm(width)
        self.feedforward = FeedForward(width, expand * width)

    def forward(self, x: Tensor) -> Tensor:
        return self.feedforward(self.norm(x))


class PairBlock(nn.Module):
    """The updates of a pair representation: triangle multiplication, triangle attention and transition (Algorithm 6,
    lines 6-10); with `attention_first`, attention comes first, as in the template stack (Algorithm 16)."""

    def __init__(self, sizes: PairSizes, attention_first: bool = False):
        super().__init__()
        width, heads, head_width = sizes.width, sizes.heads, sizes.head_width
        self.attention_first = attention_first
        self.outgoing = TriangleMultiplication(width, width, outgoing=True)
        self.incoming = TriangleMultiplication(width, width, outgoing=False)
        self.starting = TriangleAttention(width, heads, head_width, starting=True)
        self.ending = TriangleAttention(width, heads, head_width, starting=False)
        self.transition = TokenTransition(width, sizes.expand)
        self.row_drop, self.column_drop = SharedDropout(sizes.dropout, ROWS), SharedDropout(sizes.dropout, COLUMNS)

    def forward(self, z: Tensor, keep: Tensor | None, ctx: Context) -> Tensor:
        """Pairs (B, L, L, K) and their mask (B, L, L) -> (B, L, L, K)."""
        steps = (self.attend, self.multiply) if self.attention_first else (self.multiply, self.attend)
        for step in steps:
            z = step(z, keep, ctx)
        return z + self.transition(z)

    def multiply(self, z: Tensor, keep: Tensor | None, ctx: Context) -> Tensor:
        z = z + self.row_drop(self.outgoing(z, keep))
        return z + self.row_drop(self.incoming(z, keep))

    def attend(self, z: Tensor, keep: Tensor | None, ctx: Context) -> Tensor:
        z = z + self.row_drop(self.starting(z, keep, ctx.at("starting")))
        return z + self.column_drop(self.ending(z, keep, ctx.at("ending")))


class PairTransition(nn.Module):
    """The update of pairs without triangles: the transition alone. An ablation; no algorithm of the paper."""

    def __init__(self, sizes: PairSizes):
        super().__init__()
        self.transition = TokenTransition(sizes.width, sizes.expand)

    def forward(self, z: Tensor, keep: Tensor | None, ctx: Context) -> Tensor:
        """Pairs (B, L, L, K) -> (B, L, L, K)."""
        return z + self.transition(z)


def build_pair_block(sizes: PairSizes, attention_first: bool = False) -> nn.Module:
    """The updates of pairs with these sizes."""
    return PairBlock(sizes, attention_first) if sizes.triangles else PairTransition(sizes)


class EvoformerBlock(nn.Module):
    """A block of the Evoformer (Algorithm 6), in the paper's order: row-wise attention with pair bias, column-wise
    attention and transition of the alignment, outer product mean, then the updates of the pairs. With global column
    attention it is a block of the extra MSA stack (Algorithm 18)."""

    def __init__(self, msa: MsaSizes, pair: PairSizes):
        super().__init__()
        self.rows = RowAttention(msa.width, msa.heads, msa.head_width, pair.width)
        columns = GlobalColumnAttention if msa.global_columns else ColumnAttention
        self.columns = columns(msa.width, msa.heads, msa.head_width)
        self.transition = TokenTransition(msa.width, msa.expand)
        self.outer_product = OuterProductMean(msa.width, msa.outer_width, pair.width)
        self.pair = build_pair_block(pair)
        self.drop = SharedDropout(msa.dropout, ROWS)

    def forward(
        self, m: Tensor, z: Tensor, msa_keep: Tensor | None, pair_keep: Tensor | None, ctx: Context
    ) -> tuple[Tensor, Tensor]:
        """Alignment (B, S, L, C) and pairs (B, L, L, K), each with its mask -> both."""
        m = m + self.drop(self.rows(m, msa_keep, ctx.at("rows"), z))
        m = m + self.columns(m, msa_keep, ctx.at("columns"))
        m = m + self.transition(m)
        z = z + self.outer_product(m, msa_keep)
        return m, self.pair(z, pair_keep, ctx.at("pair"))


class EvoformerStack(nn.Module):
    """A stack of Evoformer blocks with their own weights. With activation checkpointing, a block's activations are
    computed again in the backward pass instead of stored."""

    def __init__(self, depth: int, msa: MsaSizes, pair: PairSizes, checkpointing: bool = False):
        super().__init__()
        self.layers = nn.ModuleList(EvoformerBlock(msa, pair) for _ in range(depth))
        self.checkpointing = checkpointing

    def forward(
        self, m: Tensor, z: Tensor, msa_keep: Tensor | None, pair_keep: Tensor | None, ctx: Context
    ) -> tuple[Tensor, Tensor]:
        for number, block in enumerate(self.layers):
            inputs = (m, z, msa_keep, pair_keep, ctx.at(number))
            if self.checkpointing and self.training and torch.is_grad_enabled():
                m, z = checkpoint(block, *inputs, use_reentrant=False)
            else:
                m, z = block(*inputs)
        return m, z


def build_pair_stack(depth: int, sizes: PairSizes) -> Sequence[nn.Module]:
    """Pair blocks of the template stack (Algorithm 16)."""
    return [build_pair_block(sizes, attention_first=True) for _ in range(depth)]
