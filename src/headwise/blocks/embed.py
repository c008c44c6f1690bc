"""Tokens to vectors: a table, a scale, positions, types, a norm, dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.blocks.dropout import make_dropout
from headwise.blocks.stream import Stream


class NoTokenTypes(nn.Module):
    """Adds nothing: one text is like another."""

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return x


class TokenTypes(nn.Module):
    """Token type embedding: x + table[which of the texts a token belongs to] (Devlin et al. 2019: segment A or B). A
    text ends with the mark `end`, which still belongs to it; texts beyond the last type are of that type."""

    def __init__(self, width: int, count: int = 2, end: int = 2):
        super().__init__()
        self.table = nn.Embedding(count, width)
        self.end = end

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        ends = ids == self.end
        before = ends.cumsum(1) - ends.long()
        return x + self.table(before.clamp(max=self.table.num_embeddings - 1))


class Embedding(nn.Module):
    """The token embedding: widen(dropout(norm(table[ids] * scale + position + type))).

    The table may be shared with another embedding and with the head. `widen` goes from vectors narrower than the
    model's to its own width (Lan et al. 2020: a large table in two factors).
    """

    def __init__(
        self,
        table: nn.Embedding,
        positions: nn.Module,
        scale: float = 1.0,
        dropout: float = 0.0,
        types: nn.Module | None = None,
        norm: nn.Module | None = None,
        widen: nn.Module | None = None,
    ):
        super().__init__()
        self.table = table
        self.positions = positions
        self.scale = scale
        self.drop = make_dropout(dropout)
        self.types = types if types is not None else NoTokenTypes()
        self.norm = norm if norm is not None else nn.Identity()
        self.widen = widen if widen is not None else nn.Identity()

    def forward(self, ids: Tensor, keep: Tensor | None = None, start: int = 0, pos: Tensor | None = None) -> Stream:
        """(B, T) ids -> a stream of (B, T, C) whose first token stands at position `start`, or all at `pos`."""
        if pos is None:
            pos = torch.arange(start, start + ids.shape[1], device=ids.device)
        else:
            start = -1
        x = self.table(ids)
        if self.scale != 1.0:
            x = x * self.scale
        x = self.types(self.positions(x, pos, start), ids)
        return Stream(self.widen(self.drop(self.norm(x))), pos, keep)
