"""Positions that are added to the embeddings (C3, C4). Relative ones are score terms (`blocks.terms`)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.errors import UserError


def sinusoid(pos: Tensor, width: int, halves: bool = False) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/width)), PE(p, 2i+1) = cos of the same, i from 0: (...) -> (..., width).

    DISCREPANCY: the paper interleaves sine and cosine, the code released with it puts all sines first (`halves`).
    """
    rates = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=pos.device) / width)
    angles = pos.unsqueeze(-1) * rates
    sines, cosines = angles.sin(), angles.cos()[..., : width // 2]
    if halves:
        return torch.cat((sines, cosines), dim=-1)
    table = angles.new_empty(*angles.shape[:-1], width)
    table[..., 0::2], table[..., 1::2] = sines, cosines
    return table


class NoPosition(nn.Module):
    """Adds nothing: for models whose positions are score terms, or which need none."""

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        return x


class Sinusoid(nn.Module):
    """x + PE(pos): nothing to learn, any length (Vaswani et al. 2017, 3.5)."""

    def __init__(self, width: int, halves: bool = False, ready: int = 512):
        super().__init__()
        self.width, self.halves = width, halves
        table = sinusoid(torch.arange(ready), width, halves).to(torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)  # a store of the first rows, not a limit
        self.table: Tensor

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        """`start` >= 0 says that `pos` is start, start + 1, ...; -1 that it is anything."""
        if start >= 0 and start + x.shape[1] <= len(self.table):
            return x + self.table[start : start + x.shape[1]]
        return x + sinusoid(pos, self.width, self.halves).to(x.dtype)


class Learned(nn.Module):
    """x + table[unused + pos]; cannot go beyond the table's length. fairseq numbers positions from the padding's id on,
    so that its tables begin with rows that nobody uses."""

    def __init__(self, width: int, limit: int = 512, unused: int = 0):
        super().__init__()
        self.limit, self.unused = limit, unused
        self.table = nn.Parameter(torch.randn(unused + limit, width) * 0.02)

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        end = start + x.shape[1] if start >= 0 else int(pos.max()) + 1
        if end > self.limit:
            raise UserError(
                f"positions: a sequence of {end} tokens does not fit the learned table of {self.limit}; "
                "set positions.limit higher and train again, or use sinusoid"
            )
        used = self.table[self.unused :] if self.unused else self.table
        return x + (used[start:end] if start >= 0 else F.embedding(pos, used))
