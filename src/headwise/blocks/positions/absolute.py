"""Positions that are added to the embeddings. Relative ones are score mods (`blocks.score_mods`)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.stack import Positions
from headwise.blocks.step import Function
from headwise.errors import UserError


def build_sinusoids(pos: Tensor, width: int, halves: bool = False) -> Tensor:
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


def look_up(table: Tensor, rows: int, beyond: Function) -> Function:
    """The step form of positions in a table; `beyond` its rows another step form takes over."""

    def step(x: Tensor, scale: float, length: int, pos: Tensor | None) -> Tensor:
        if length >= rows:
            return beyond(x, scale, length, pos)
        return torch.add(table[length] if pos is None else F.embedding(pos[:, 0], table), x, alpha=scale)

    return step


class SinusoidalPositions(Positions):
    """Sinusoidal positions: x + PE(pos): nothing to learn, any length (Vaswani et al. 2017, 3.5)."""

    def __init__(self, width: int, halves: bool = False, ready: int = 512):
        super().__init__()
        self.width, self.halves = width, halves
        table = build_sinusoids(torch.arange(ready), width, halves).to(torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)  # a store of the first rows, not a limit
        self.table: Tensor

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        if start >= 0 and start + x.shape[1] <= len(self.table):
            return x + self.table[start : start + x.shape[1]]
        return x + build_sinusoids(pos, self.width, self.halves).to(x.dtype)

    def stepper(self) -> Function:
        return look_up(self.table, len(self.table), super().stepper())


class LearnedPositions(Positions):
    """Learned position embedding: x + table[offset + pos]; cannot go beyond the table's length. fairseq numbers
    positions from the padding's id on, so that its tables begin with rows that nobody uses."""

    setting = "max_length"  # what a user changes for more places

    def __init__(self, width: int, max_length: int = 512, offset: int = 0):
        super().__init__()
        self.max_length, self.offset = max_length, offset
        self.table = nn.Parameter(torch.randn(offset + max_length, width) * 0.02)

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        end = start + x.shape[1] if start >= 0 else int(pos.max()) + 1
        if end > self.max_length:
            raise UserError(
                f"positions: a sequence of {end} tokens does not fit the learned table of {self.max_length}; "
                f"set positions.{self.setting} higher and train again, or use sinusoid"
            )
        return x + self.vectors(pos, start, end)

    def stepper(self) -> Function:
        return look_up(self.table[self.offset :], self.max_length, super().stepper())

    def vectors(self, pos: Tensor, start: int, end: int) -> Tensor:
        """The rows of start ... end - 1 or, where `start` is -1, of `pos`."""
        used = self.table[self.offset :] if self.offset else self.table
        return used[start:end] if start >= 0 else F.embedding(pos, used)


class AxialPositions(LearnedPositions):
    """Axial position embedding: x + [rows[p // n2]; columns[p % n2]] at place p of a grid of n1 x n2: n1 + n2 vectors
    serve n1 * n2 places, as in the released Reformer (Kitaev et al. 2020).

    DISCREPANCY: trax and transformers begin with N(0, 1), beside embeddings of 0.02; we begin as `LearnedPositions`
    does.
    """

    setting = "shape"

    def __init__(self, shape: tuple[int, int], widths: tuple[int, int]):
        nn.Module.__init__(self)
        self.columns_in_row = shape[1]
        self.max_length = shape[0] * shape[1]
        self.rows, self.columns = (
            nn.Parameter(torch.randn(count, width) * 0.02) for count, width in zip(shape, widths, strict=True)
        )

    def vectors(self, pos: Tensor, start: int, end: int) -> Tensor:
        row, column = pos // self.columns_in_row, pos % self.columns_in_row
        return torch.cat((F.embedding(row, self.rows), F.embedding(column, self.columns)), dim=-1)  # (..., d1 + d2)


class NoPositionsConfig(PositionConfig):
    kind: Literal["none"] = "none"


class SinusoidalPositionsConfig(PositionConfig):
    kind: Literal["sinusoid"] = "sinusoid"
    halves: bool = False

    def embedding(self, width: int) -> Positions:
        return SinusoidalPositions(width, self.halves)


class LearnedPositionsConfig(PositionConfig):
    kind: Literal["learned"] = "learned"
    max_length: int = Field(512, ge=1)
    offset: int = Field(0, ge=0)  # rows that stand before the first position's; BART has two

    def embedding(self, width: int) -> Positions:
        return LearnedPositions(width, self.max_length, self.offset)


class AxialPositionsConfig(PositionConfig):
    """Learned vectors for the rows and the columns of a grid of places, with `widths` channels each; 0: a quarter of
    the model's for rows, the rest for columns."""

    kind: Literal["axial"] = "axial"
    shape: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (64, 64)
    widths: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = (0, 0)

    def embedding(self, width: int) -> Positions:
        first, second = self.widths if any(self.widths) else (width // 4, width - width // 4)
        if first + second != width:
            raise UserError(f"positions.widths: {first} and {second} channels do not make the width of {width}")
        return AxialPositions(self.shape, (first, second))
