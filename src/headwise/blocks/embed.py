"""Tokens to vectors: a table, a scale, positions, dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.blocks.dropout import make_dropout
from headwise.blocks.stream import Stream


class Embedding(nn.Module):
    """dropout(table[ids] * scale + position). The table may be shared with another embedding and with the head."""

    def __init__(self, table: nn.Embedding, positions: nn.Module, scale: float = 1.0, dropout: float = 0.0):
        super().__init__()
        self.table = table
        self.positions = positions
        self.scale = scale
        self.drop = make_dropout(dropout)

    def forward(self, ids: Tensor, keep: Tensor | None = None, start: int = 0) -> Stream:
        """(B, T) ids -> a stream of (B, T, C) whose first token stands at position `start`."""
        pos = torch.arange(start, start + ids.shape[1], device=ids.device)
        x = self.table(ids)
        if self.scale != 1.0:
            x = x * self.scale
        return Stream(self.drop(self.positions(x, pos, start)), pos, keep)
