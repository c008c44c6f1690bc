"""Axial attention over tables of vectors, such as a multiple sequence alignment or a pair representation (Jumper et al.
2021, supplement, Algorithms 7, 8, 9, 15 and 19).

A table (B, S, L, C) has S rows of L columns. Attention along an axis treats every line of the other one as a row of the
batch, so the attention itself is that of the rest of the toolkit.

Letters: B tables, S rows, L columns, C width, H heads, D head_width, K width of the pair representation.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from headwise.blocks.attention.gated import GatedAttention
from headwise.blocks.attention.kernels import auto
from headwise.blocks.attention.multihead import SelfProjection
from headwise.blocks.attention.pair_bias import PairBias
from headwise.blocks.attention.score_mods import BASE_MASKS, AttentionInputs, AttentionLayout
from headwise.blocks.norm import LayerNorm
from headwise.blocks.stream import Context, Stream

MAX_SCORES = 2**23  # of a head at once, without gradients


class SharedDropout(nn.Module):
    """Dropout with one mask for all lines of a table along `dim` (row-wise and column-wise dropout, section 1.11.6)."""

    def __init__(self, p: float, dim: int):
        super().__init__()
        self.p, self.dim = p, dim

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.p):
            return x
        shape = list(x.shape)
        shape[self.dim] = 1
        return x * nn.functional.dropout(x.new_ones(shape), self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}, dim={self.dim}"


class RowAttention(nn.Module):
    """Row-wise gated self-attention, with a pair bias where there is a pair representation (Algorithm 7)."""

    def __init__(self, width: int, heads: int, head_width: int, pair_width: int = 0):
        super().__init__()
        self.norm = LayerNorm(width)
        self.attention = GatedAttention(
            width,
            heads,
            qkv=SelfProjection(width, heads, head_width, bias=False),
            head_width=head_width,
            score_mods=(PairBias(pair_width, heads),) if pair_width else (),
        )

    def forward(self, x: Tensor, keep: Tensor | None, ctx: Context, pair: Tensor | None = None) -> Tensor:
        """Table (B, S, L, C), its mask (B, S, L) and pairs (B, L, L, K) -> (B, S, L, C)."""
        return attend_along_rows(self.attention, self.norm(x), keep, ctx, pair)


class ColumnAttention(nn.Module):
    """Column-wise gated self-attention (Algorithm 8): each column of a table by itself."""

    def __init__(self, width: int, heads: int, head_width: int):
        super().__init__()
        self.rows = RowAttention(width, heads, head_width)

    def forward(self, x: Tensor, keep: Tensor | None, ctx: Context) -> Tensor:
        """Table (B, S, L, C) and its mask (B, S, L) -> (B, S, L, C)."""
        return self.rows(x.transpose(1, 2), None if keep is None else keep.transpose(1, 2), ctx).transpose(1, 2)


def attend_along_rows(
    attention: nn.Module, x: Tensor, keep: Tensor | None, ctx: Context, pair: Tensor | None = None
) -> Tensor:
    """Attention within each row of a table: (B, S, L, C) -> (B, S, L, C). Without gradients, large tables are computed
    some rows at a time, as biases are stored for each row."""
    rows = max(MAX_SCORES // max(x.shape[0] * x.shape[2] ** 2, 1), 1)
    if not torch.is_grad_enabled() and rows < x.shape[1]:
        keeps = [None] * x.shape[1] if keep is None else keep.split(rows, dim=1)
        parts = zip(x.split(rows, dim=1), keeps, strict=False)
        return torch.cat([attend_along_rows(attention, *part, ctx, pair) for part in parts], dim=1)
    stream = Stream.of(x.flatten(0, 1), None if keep is None else keep.flatten(0, 1))  # (B, S, L, C) -> (BS, L, C)
    ctx = replace(ctx, shared={})  # biases of a layer are not kept for the next
    return attention(replace(stream, pair=pair), ctx).view_as(x)


class GlobalColumnAttention(nn.Module):
    """Column-wise global self-attention (Algorithm 19): one query for a whole column, the mean of its tokens, and one
    head of keys and values for all heads of queries; every token has its own gate. Its cost is linear in the rows."""

    def __init__(self, width: int, heads: int, head_width: int):
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.norm = LayerNorm(width)
        self.query = nn.Linear(width, heads * head_width, bias=False)
        self.key_value = nn.Linear(width, 2 * head_width, bias=False)
        self.gate = nn.Linear(width, heads * head_width)
        self.out = nn.Linear(heads * head_width, width)

    def forward(self, x: Tensor, keep: Tensor | None, ctx: Context) -> Tensor:
        """Table (B, S, L, C) and its mask (B, S, L) -> (B, S, L, C)."""
        x = self.norm(x)
        columns = x.transpose(1, 2).flatten(0, 1)  # (B, S, L, C) -> (BL, S, C)
        real = None if keep is None else keep.transpose(1, 2).flatten(0, 1)  # (BL, S)
        q = self.query(average(columns, real)).view(-1, self.heads, 1, self.head_width)  # (BL, C) -> (BL, H, 1, D)
        k, v = self.key_value(columns).unsqueeze(1).expand(-1, self.heads, -1, -1).chunk(2, dim=-1)  # (BL, H, S, D)
        layout = AttentionLayout(1, k.shape[2], keep=real)
        inputs = AttentionInputs(q, k, v, self.head_width**-0.5, layout, BASE_MASKS)
        ctx.record.observe(ctx.path, inputs)
        heads = auto(inputs).view(x.shape[0], 1, x.shape[2], self.gate.out_features)  # (BL, H, 1, D) -> (B, 1, L, HD)
        return self.out(self.gate(x).sigmoid() * heads)


def average(x: Tensor, keep: Tensor | None) -> Tensor:
    """The mean of real tokens: (B, S, C) -> (B, C)."""
    if keep is None:
        return x.mean(1)
    weights = keep.to(x.dtype).unsqueeze(-1)
    return (x * weights).sum(1) / weights.sum(1).clamp(min=torch.finfo(x.dtype).tiny)
