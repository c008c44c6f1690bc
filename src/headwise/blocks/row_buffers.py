"""Tensors of a batch whose rows come and go: preallocated slots, in which a row that joins is written and nothing else
is copied.

Letters: R rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.blocks.stream import Stream
from headwise.errors import UserError


@dataclass(frozen=True, slots=True)
class RowMoves:
    """Which rows of a batch take the contents of others: row `to[i]` those of `of[i]`; `count` rows are left."""

    to: Tensor
    of: Tensor
    count: int

    @classmethod
    def from_order(cls, rows: Tensor) -> RowMoves:
        """The moves after which the batch has `rows`, in that order; a row that stays in its place is not moved.

        >>> moves = RowMoves.from_order(torch.tensor([0, 3, 2]))  # the last row fills a gap
        >>> moves.to.tolist(), moves.of.tolist(), moves.count
        ([1], [3], 3)
        """
        to = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
        return cls(to, rows[to], len(rows))

    def drop_equal(self, before: Tensor, after: Tensor) -> RowMoves:
        """Without the moves after which a row has the same contents, given the contents of all rows as numbers."""
        old = before[self.to.clamp(max=len(before) - 1)]
        changed = (self.to >= len(before)) | (old != after[self.to])
        return RowMoves(self.to[changed], self.of[changed], self.count)


class RowBuffer:
    """Tensors with R rows in buffers with room for more, whose tokens run along `dim`. Subclasses say where a row's
    tokens are. Unused places hold finite numbers, since a masked key still is a factor."""

    __slots__ = ("buffers", "dim", "end", "rows", "start", "views")

    def __init__(self, dim: int):
        self.dim = dim
        self.rows = 0
        self.start = self.end = 0  # the columns in use
        self.buffers: list[Tensor] = []
        self.views: list[Tensor] = []  # the rows in use, with all columns

    @property
    def width(self) -> int:
        """The number of columns in use."""
        return self.end - self.start

    @property
    def room(self) -> int:
        """The number of rows of the buffers."""
        return len(self.buffers[0]) if self.buffers else 0

    def find_room(self, rows: int) -> int:
        """The number of rows to allocate for `rows`: twice as many as before where they do not fit."""
        return self.room if rows <= self.room else max(rows, 2 * self.room)

    def read(self) -> tuple[Tensor, ...]:
        """The rows and columns in use."""
        return tuple(view.narrow(self.dim, self.start, self.width) for view in self.views)

    def set_rows(self, rows: int) -> None:
        """Use the first `rows` rows of the buffers."""
        self.rows = rows
        self.views = [buffer.narrow(0, 0, rows) for buffer in self.buffers] if self.dim else self.buffers

    def move(self, moves: RowMoves) -> None:
        """Move rows; none of the others is copied."""
        if not self.dim:
            return  # shared by all rows
        moved = [view.index_select(0, moves.of) for view in self.read()] if len(moves.to) else []
        if moves.count > self.room:  # rows are repeated
            self.allocate(self.views, moves.count, self.buffers[0].shape[self.dim], self.end, self.width)
        self.set_rows(moves.count)
        for view, contents in zip(self.read(), moved, strict=False):
            view.index_copy_(0, moves.to, contents)

    def allocate(self, like: Sequence[Tensor], rows: int, columns: int, end: int, stored: int) -> None:
        """Allocate buffers of `rows` x `columns`, and copy the last `stored` columns in use so that they end at
        `end`."""
        buffers = []
        for tensor in like:
            shape = list(tensor.shape)
            shape[0] = rows
            shape[self.dim] = columns
            buffers.append(tensor.new_zeros(shape))
        if stored:
            for buffer, view in zip(buffers, self.views, strict=True):
                target = buffer.narrow(0, 0, self.rows) if self.dim else buffer
                target.narrow(self.dim, end - stored, stored).copy_(view.narrow(self.dim, self.end - stored, stored))
        self.buffers, self.start, self.end = buffers, end - stored, end
        self.set_rows(self.rows)


class GrowingBuffer(RowBuffer):
    """Tensors that grow along one dimension. The tokens of a row are its last columns, so that a new token of every row
    is one more column; full buffers are replaced by ones of twice the length."""

    __slots__ = ("dropped",)

    def __init__(self, dim: int):
        super().__init__(dim)
        self.dropped = 0  # columns before those in use, of which nothing is kept any more

    @property
    def total(self) -> int:
        """The number of tokens that the longest row has read."""
        return self.dropped + self.end - self.start

    def extend(self, new: tuple[Tensor, ...], capacity: int, limit: int = 0) -> tuple[Tensor, ...]:
        """Append a column or more to all rows; returns the last `limit` stored columns (0: all), then `new`."""
        dim, added = self.dim, new[0].shape[self.dim]
        stored = self.end - self.start
        if limit and limit < stored:
            stored = limit
        if not self.buffers:
            self.rows = len(new[0])
            self.allocate(new, self.rows, max(capacity, 2 * added), 0, 0)
        elif self.end + added > self.buffers[0].shape[dim]:
            self.dropped += self.width - stored
            self.allocate(self.buffers, len(self.buffers[0]), max(capacity, 2 * (stored + added)), stored, stored)
        end, columns = self.end, []  # a plain loop: it runs in every layer of every step
        for view, tensor in zip(self.views, new, strict=True):
            view.narrow(dim, end, added).copy_(tensor)
            columns.append(view.narrow(dim, end - stored, stored + added))
        self.end = end + added
        return tuple(columns)

    def read_last(self, limit: int = 0) -> tuple[Tensor, ...]:
        """The last `limit` stored columns (0: all)."""
        stored = min(self.width, limit or self.width)
        return tuple(view.narrow(self.dim, self.end - stored, stored) for view in self.views)

    def join(self, new: tuple[Tensor, ...], total: int, capacity: int) -> None:
        """Append rows, whose columns `new` are the last of their `total` tokens."""
        added, width, total = len(new[0]), new[0].shape[self.dim], max(total, self.total)
        rows, longest = self.rows + added, max(width, self.width)
        if rows > self.room or width > self.end:
            left = longest // 4  # for a longer row
            columns = left + longest + max(capacity, longest // 2)
            self.allocate(new, self.find_room(rows), columns, left + longest, self.width)
        for buffer, tensor in zip(self.buffers, new, strict=True):
            buffer.narrow(0, self.rows, added).narrow(self.dim, self.end - width, width).copy_(tensor)
        self.start = self.end - longest
        self.dropped = total - longest
        self.set_rows(rows)

    def forget(self, total: int) -> None:
        """Drop the columns before the last `total` ones: the longest row has read no more tokens."""
        self.start = self.end - min(self.width, total)
        self.dropped = total - self.width


class PaddedRows(RowBuffer):
    """Tensors with a row for each source, whose tokens are its first columns; shorter rows are padded at the end."""

    __slots__ = ()

    def __init__(self, dim: int, *tensors: Tensor):
        super().__init__(dim)
        self.join(tensors)

    def join(self, new: Sequence[Tensor]) -> None:
        """Append rows."""
        added, width = len(new[0]), new[0].shape[self.dim]
        rows, longest = self.rows + added, max(width, self.width)
        columns = self.buffers[0].shape[self.dim] if self.buffers else 0
        if rows > self.room or longest > columns:
            columns = columns if longest <= columns else longest + columns // 4
            self.allocate(new, self.find_room(rows), columns, self.width, self.width)
        for view in self.views:  # what rows before left there must not look like tokens in a mask
            view.narrow(self.dim, self.width, longest - self.width).zero_()
        for buffer, tensor in zip(self.buffers, new, strict=True):
            target = buffer.narrow(0, self.rows, added)
            target.narrow(self.dim, 0, width).copy_(tensor)
            target.narrow(self.dim, width, longest - width).zero_()
        self.end = longest
        self.set_rows(rows)

    def narrow(self, width: int) -> None:
        """Drop the last columns: no row is longer than `width`."""
        self.end = width


class StreamRows:
    """Streams of sources (the memory of a decoder), whose rows come and go."""

    def __init__(self, stream: Stream):
        self.grid = stream.grid
        self.widths = [stream.x.shape[1]] * len(stream.x)  # of each row
        self.pos: Tensor | None = stream.pos if stream.pos.dim() == 1 else None  # those of all rows, the longest
        self.fields = {name: PaddedRows(1, value) for name, value in _list_fields(stream).items()}

    def join(self, stream: Stream) -> None:
        """Append rows."""
        if stream.grid != self.grid:
            raise UserError("join: images on different grids cannot share a state; start them in separate ones")
        if self.pos is not None:
            shorter, longer = sorted((self.pos, stream.pos), key=len)
            shared = stream.pos.dim() == 1 and torch.equal(shorter, longer[: len(shorter)])
            self.pos = longer if shared else None
        for name, value in _list_fields(stream).items():
            self.fields[name].join((value,))
        self.widths += [stream.x.shape[1]] * len(stream.x)

    def move(self, moves: RowMoves) -> None:
        """Move rows; columns that none needs any more are dropped."""
        widths = self.widths + [0] * (moves.count - len(self.widths))
        for to, of in zip(moves.to.tolist(), moves.of.tolist(), strict=True):
            widths[to] = self.widths[of]
        self.widths = widths[: moves.count]
        for rows in self.fields.values():
            rows.move(moves)
            rows.narrow(max(self.widths, default=0))

    @property
    def stream(self) -> Stream:
        """All rows; without a mask where they have one length."""
        values = {name: rows.read()[0] for name, rows in self.fields.items()}
        keep, pos = values.pop("keep"), values.pop("pos")
        pos = pos if self.pos is None else self.pos[: pos.shape[1]]
        return Stream(values.pop("x"), pos, None if bool(keep.all()) else keep, self.grid, **values)


def _list_fields(stream: Stream) -> dict[str, Tensor]:
    """The tensors of a stream, with a row for each source."""
    rows, length, _ = stream.x.shape
    keep = stream.keep if stream.keep is not None else stream.x.new_ones((rows, length), dtype=torch.bool)
    fields = {"x": stream.x, "keep": keep, "pos": stream.pos.expand(rows, -1)}
    return fields | {
        name: value for name in ("segment", "tree", "token_types") if (value := getattr(stream, name)) is not None
    }


def trim_padding(stream: Stream) -> Stream:
    """Drop the columns at the end of a stream that are padding in every row."""
    if stream.keep is None:
        return stream
    real = stream.keep.any(0).nonzero()[:, 0]
    length = int(real[-1]) + 1 if len(real) else 1
    return stream if length == stream.x.shape[1] else replace(stream.take_first(length), grid=stream.grid)
