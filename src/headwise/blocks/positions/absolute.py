"""Absolute position embeddings, added to token embeddings: sinusoidal, learned, axial. Relative positions are score
mods (`relative.py`, `rotary.py`, `alibi.py`)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.decode_step import Function
from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.stack import Positions
from headwise.errors import UserError


def build_sinusoids(pos: Tensor, width: int, halves: bool = False) -> Tensor:
    """Sinusoids of positions: PE(p, 2i) = sin(p / 10000^(2i/width)), PE(p, 2i+1) = cos(p / 10000^(2i/width)), i from 0:
    (...) -> (..., width).

    DISCREPANCY: the paper interleaves sine and cosine, the code released with it puts all sines first (`halves`).
    """
    rates = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=pos.device) / width)
    angles = pos.unsqueeze(-1) * rates  # (...) -> (..., width / 2)
    sines, cosines = angles.sin(), angles.cos()[..., : width // 2]
    if halves:
        return torch.cat((sines, cosines), dim=-1)
    table = angles.new_empty(*angles.shape[:-1], width)
    table[..., 0::2], table[..., 1::2] = sines, cosines
    return table


def make_lookup_step(table: Tensor, rows: int, beyond: Function) -> Function:
    """The decode step of a table of position vectors; positions after its last row go to the decode step `beyond`."""

    def step(x: Tensor, scale: float, length: int, pos: Tensor | None) -> Tensor:
        if length >= rows:
            return beyond(x, scale, length, pos)
        return torch.add(table[length] if pos is None else F.embedding(pos[:, 0], table), x, alpha=scale)

    return step


class SinusoidalPositions(Positions):
    """Sinusoidal positions (Vaswani et al. 2017, section 3.5): x + PE(pos), without parameters, for any length."""

    def __init__(self, width: int, halves: bool = False, cached: int = 512):
        super().__init__()
        self.width, self.halves = width, halves
        table = build_sinusoids(torch.arange(cached), width, halves).to(torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)  # precomputed rows, not a limit
        self.table: Tensor

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        if start >= 0 and start + x.shape[1] <= len(self.table):
            return x + self.table[start : start + x.shape[1]]
        return x + build_sinusoids(pos, self.width, self.halves).to(x.dtype)

    def build_decode_step(self) -> Function:
        return make_lookup_step(self.table, len(self.table), super().build_decode_step())


class LearnedPositions(Positions):
    """Learned position embedding: x + table[offset + pos], for positions below `max_length`. fairseq counts positions
    from the padding id on, so its tables begin with `offset` unused rows."""

    setting = "max_length"  # the key that sets the number of positions

    def __init__(self, width: int, max_length: int = 512, offset: int = 0):
        super().__init__()
        self.max_length, self.offset = max_length, offset
        self.table = nn.Parameter(torch.randn(offset + max_length, width) * 0.02)

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        if start < 0 and torch.compiler.is_compiling():  # positions have no values then
            return x + self.look_up(pos, start, 0)
        end = start + x.shape[1] if start >= 0 else int(pos.max()) + 1
        if end > self.max_length:
            raise UserError(
                f"positions: a sequence of {end} tokens does not fit the learned table of {self.max_length}; "
                f"shorten it, or train with a higher positions.{self.setting} or sinusoid"
            )
        return x + self.look_up(pos, start, end)

    def build_decode_step(self) -> Function:
        return make_lookup_step(self.table[self.offset :], self.max_length, super().build_decode_step())

    def look_up(self, pos: Tensor, start: int, end: int) -> Tensor:
        """The vectors of positions start ... end - 1 or, where `start` is -1, of `pos`."""
        table = self.table[self.offset :] if self.offset else self.table
        return table[start:end] if start >= 0 else F.embedding(pos, table)


class AxialPositions(LearnedPositions):
    """Axial position embedding: x + [rows[p // n2]; columns[p % n2]] at position p of a grid of n1 x n2: n1 + n2
    vectors serve n1 * n2 positions, as in the released Reformer (Kitaev et al. 2020).

    DISCREPANCY: trax and transformers initialise with N(0, 1), beside token embeddings of 0.02; we initialise as
    `LearnedPositions` does.
    """

    setting = "shape"

    def __init__(self, shape: tuple[int, int], widths: tuple[int, int]):
        nn.Module.__init__(self)
        self.columns_in_row = shape[1]
        self.max_length = shape[0] * shape[1]
        self.rows, self.columns = (
            nn.Parameter(torch.randn(count, width) * 0.02) for count, width in zip(shape, widths, strict=True)
        )

    def look_up(self, pos: Tensor, start: int, end: int) -> Tensor:
        row, column = pos // self.columns_in_row, pos % self.columns_in_row
        return torch.cat((F.embedding(row, self.rows), F.embedding(column, self.columns)), dim=-1)  # (..., d1 + d2)


class NoPositionsConfig(PositionConfig):
    kind: Literal["none"] = "none"


class SinusoidalPositionsConfig(PositionConfig):
    kind: Literal["sinusoid"] = "sinusoid"
    halves: bool = False

    def build_positions(self, width: int) -> Positions:
        return SinusoidalPositions(width, self.halves)


class LearnedPositionsConfig(PositionConfig):
    kind: Literal["learned"] = "learned"
    max_length: int = Field(512, ge=1)
    offset: int = Field(0, ge=0)  # unused rows before that of the first position; BART has two

    def build_positions(self, width: int) -> Positions:
        return LearnedPositions(width, self.max_length, self.offset)


class AxialPositionsConfig(PositionConfig):
    """Learned vectors for the rows and the columns of a grid of positions, with `widths` channels each; 0: a quarter of
    the width for rows, the rest for columns."""

    kind: Literal["axial"] = "axial"
    shape: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (64, 64)
    widths: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = (0, 0)

    def build_positions(self, width: int) -> Positions:
        first, second = self.widths if any(self.widths) else (width // 4, width - width // 4)
        if first + second != width:
            raise UserError(f"positions.widths: {first} and {second} do not add up to the width of {width}; change one")
        return AxialPositions(self.shape, (first, second))
