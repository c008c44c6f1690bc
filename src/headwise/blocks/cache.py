"""The KV cache of step-by-step decoding: keys and values in preallocated buffers, by path in the stack.

Letters: R rows, T length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.blocks.stream import Cache, LayerPath, Stream, Value
from headwise.errors import UserError


class GrowingBuffer:
    """Tensors that grow along one dimension, in preallocated buffers; full buffers are replaced by ones of twice the
    length."""

    __slots__ = ("buffers", "dim", "length")

    def __init__(self, dim: int):
        self.dim = dim
        self.length = 0
        self.buffers: list[Tensor] = []

    def extend(self, new: tuple[Tensor, ...], capacity: int, limit: int = 0) -> tuple[Tensor, ...]:
        """Append `new`; returns the last `limit` stored columns (0: all), then `new`."""
        added = new[0].shape[self.dim]
        stored = min(self.length, limit or self.length)
        if not self.buffers or self.length + added > self.buffers[0].shape[self.dim]:
            self._grow(new, stored, max(capacity, 2 * (stored + added)))
        dim, length, columns = self.dim, self.length, []  # a plain loop: it runs in every layer of every step
        for buffer, tensor in zip(self.buffers, new, strict=True):
            buffer.narrow(dim, length, added).copy_(tensor)
            columns.append(buffer.narrow(dim, length - stored, stored + added))
        self.length = length + added
        return tuple(columns)

    def _grow(self, new: tuple[Tensor, ...], stored: int, capacity: int) -> None:
        """Allocate buffers of `capacity` columns, and copy the last `stored` ones into them."""
        buffers = []
        for tensor in new:
            shape = list(tensor.shape)
            shape[self.dim] = capacity
            buffers.append(tensor.new_empty(shape))
        for buffer, old in zip(buffers, self.buffers, strict=False):  # there are no old ones the first time
            buffer.narrow(self.dim, 0, stored).copy_(old.narrow(self.dim, self.length - stored, stored))
        self.buffers, self.length = buffers, stored

    def read(self, limit: int = 0) -> tuple[Tensor, ...]:
        """The last `limit` stored columns (0: all)."""
        stored = min(self.length, limit or self.length)
        return tuple(buffer.narrow(self.dim, self.length - stored, stored) for buffer in self.buffers)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        if self.dim == 0:
            return  # shared by all rows
        for index, buffer in enumerate(self.buffers):
            selected = buffer.narrow(self.dim, 0, self.length).index_select(0, rows)
            if len(rows) < len(buffer):
                self.buffers[index] = buffer = buffer[: len(rows)]
            buffer.narrow(self.dim, 0, self.length).copy_(selected)


class DecodingCache(Cache):
    """The KV cache: tensors by path in the stack. Of those that grow the last `limit` columns are kept (0: all). Rows
    of one source are contiguous: source s has rows s*beams ... s*beams+beams-1."""

    def __init__(self, rows: int, beams: int = 1, capacity: int = 32, limit: int = 0):
        self.rows = rows
        self.beams = beams
        self.capacity = capacity
        self.limit = limit
        self.growing: dict[LayerPath, GrowingBuffer] = {}
        self.keep: dict[LayerPath, GrowingBuffer] = {}  # padding masks (R, T) of what grows, where there is padding
        self.positions: dict[LayerPath, GrowingBuffer] = {}  # (T,), or (R, T) where rows have different lengths
        self.states: dict[LayerPath, Tensor] = {}
        self.fresh: dict[LayerPath, Tensor] = {}  # (R,) True = a row that joined before it had a state
        self.per_source: dict[LayerPath, Any] = {}  # what `compute_once` computed
        self.source_dims: dict[LayerPath, int] = {}  # dimension of the source's tokens in `per_source`, to be padded

    def extend(self, path: LayerPath, dim: int, *new: Tensor) -> tuple[Tensor, ...]:
        entry = self.growing.get(path)
        if entry is None:
            entry = self.growing[path] = GrowingBuffer(dim)
        return entry.extend(new, self.capacity, self.limit and self._get_limit(path))

    def extend_keep(self, path: LayerPath, stream: Stream) -> Tensor | None:
        entry = self.keep.get(path)
        if entry is None and stream.keep is None:
            return None
        rows, added, _ = stream.x.shape
        keep = stream.keep if stream.keep is not None else stream.pos.new_ones((rows, added), dtype=torch.bool)
        columns = None  # number of columns that `extend` has just returned; None: all
        if entry is None:  # the first padding: all tokens before were real
            before = self.growing[path].length - added if path in self.growing else 0
            columns = min(before, self.limit) + added if self.limit else None
            entry = self.keep[path] = self._make_buffer(1, keep.new_ones(rows, before))
        (keep,) = entry.extend((keep,), self.capacity)
        if self.limit:  # the last tokens of each row, its padding not counted
            keep &= keep.flip(1).cumsum(1).flip(1) <= self.limit + added
        return keep if columns is None else keep[:, -columns:]

    def extend_positions(self, path: LayerPath, pos: Tensor) -> Tensor:
        entry = self.positions.get(path)
        if entry is None:
            entry = self.positions[path] = GrowingBuffer(pos.dim() - 1)
        return entry.extend((pos,), self.capacity, self._get_limit(path))[0]

    def _get_limit(self, path: LayerPath) -> int:
        """The number of columns to keep (0: all); where rows have padding, the mask drops the others."""
        return 0 if path in self.keep else self.limit

    def compute_once(self, path: LayerPath, compute: Callable[[], Value], dim: int | None = None) -> Value:
        if path not in self.per_source:
            self.per_source[path] = compute()
            if dim is not None:
                self.source_dims[path] = dim
        return self.per_source[path]

    def get_state(self, path: LayerPath, initial: Callable[[], Tensor]) -> Tensor:
        if path not in self.states:
            return initial()
        if path not in self.fresh:
            return self.states[path]
        state, fresh = self.states[path], self.fresh.pop(path)
        return torch.where(fresh.view(-1, *(1,) * (state.dim() - 1)), initial(), state)

    def put_state(self, path: LayerPath, value: Tensor) -> None:
        self.states[path] = value

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order. What is stored once per source changes only when sources leave or change
        places."""
        for entry in (*self.growing.values(), *self.keep.values(), *self.positions.values()):
            entry.select(rows)
        self.states = {path: value.index_select(0, rows) for path, value in self.states.items()}
        self.fresh = {path: value.index_select(0, rows) for path, value in self.fresh.items()}
        if self.moves_sources(rows):
            sources = self.find_sources(rows)
            self.per_source.update({path: select_rows(value, sources) for path, value in self.per_source.items()})
            self.rows = len(rows)

    def moves_sources(self, rows: Tensor) -> bool:
        """Whether sources leave or, where each has one row, may change places; beams only move within their source."""
        return len(rows) < self.rows or self.beams == 1

    def find_sources(self, rows: Tensor) -> Tensor:
        """The indices of the sources that these rows belong to."""
        return torch.div(rows[:: self.beams], self.beams, rounding_mode="floor")

    def compact(self, ragged: bool) -> None:
        """Move the real tokens of each row to the left, and drop the columns that no row needs any more. Rows of one
        length (not `ragged`) need no mask, and share their positions."""
        for path, entry in list(self.keep.items()):
            keep, order = entry.read()[0].sort(dim=1, descending=True, stable=True)  # (R, T)
            width = int(keep.sum(1).max())
            keep, order = keep[:, :width], order[:, :width]
            self.growing[path] = self._reorder_columns(self.growing[path], order)
            if path in self.positions:
                positions = self._reorder_columns(self.positions[path], order)
                self.positions[path] = positions if ragged else self._make_buffer(0, positions.read()[0][0])
            if ragged:
                self.keep[path] = self._make_buffer(1, keep)
            else:
                del self.keep[path]

    def join(self, other: DecodingCache, ragged: bool) -> None:
        """Append the rows of another cache. Where some are shorter (`ragged`), they are padded on the right."""
        both = (self, other)
        for path in {**self.growing, **other.growing}:
            entry = self.growing.get(path) or other.growing[path]
            like, dim = entry.read(), entry.dim
            tensors = [cache._read_tokens(path, like, dim) for cache in both]
            if path in self.positions or path in other.positions:
                self._join_positions(path, other, ragged)
            if ragged:
                keeps = [cache._read_keep(path, stored[0], dim) for cache, stored in zip(both, tensors, strict=True)]
                self.keep[path] = self._make_buffer(1, join_padded(keeps, 1))
            joined = (join_padded(pair, dim) for pair in zip(*tensors, strict=True))
            self.growing[path] = self._make_buffer(dim, *joined)
        for path in {**self.states, **other.states}:
            self._join_state(path, other)
        for path in list(self.per_source):
            values, other_values = self.per_source.pop(path), other.per_source.get(path)
            if path in self.source_dims and other_values is not None:  # the others are computed again
                pairs = zip(values, other_values, strict=True)
                self.per_source[path] = tuple(join_padded(pair, self.source_dims[path]) for pair in pairs)
        self.rows += other.rows

    def _reorder_columns(self, entry: GrowingBuffer, order: Tensor) -> GrowingBuffer:
        """The columns of an entry in another order for each row, (R, T)."""
        shape = [len(order), *(1,) * (entry.buffers[0].dim() - 1)]
        shape[entry.dim] = order.shape[1]
        tensors = (tensor.take_along_dim(order.view(shape), entry.dim) for tensor in entry.read())
        return self._make_buffer(entry.dim, *tensors)

    def _make_buffer(self, dim: int, *tensors: Tensor) -> GrowingBuffer:
        entry = GrowingBuffer(dim)
        entry.extend(tensors, self.capacity)
        return entry

    def _read_tokens(self, path: LayerPath, like: tuple[Tensor, ...], dim: int) -> tuple[Tensor, ...]:
        """The tensors at `path`; where there are none yet, tensors shaped as `like` with no tokens."""
        if path in self.growing:
            return self.growing[path].read(self._get_limit(path))
        empty = (tensor.narrow(dim, 0, 0)[:1] for tensor in like)
        return tuple(tensor.expand(self.rows, *tensor.shape[1:]) for tensor in empty)

    def _read_keep(self, path: LayerPath, tokens: Tensor, dim: int) -> Tensor:
        """The padding mask of the tokens at `path`, (R, T)."""
        if path in self.keep:
            return self.keep[path].read()[0]
        return tokens.new_ones((self.rows, tokens.shape[dim]), dtype=torch.bool)

    def _join_positions(self, path: LayerPath, other: DecodingCache, ragged: bool) -> None:
        if not ragged and path in self.positions:
            return  # all rows have the same positions
        pos = []
        for cache in (self, other):
            stored = (
                cache.positions[path].read(cache._get_limit(path))[0] if path in cache.positions else torch.empty(0)
            )
            pos.append(stored if stored.dim() == 2 else stored.expand(cache.rows, -1))
        like = next(stored for stored in pos if stored.shape[1])
        self.positions[path] = self._make_buffer(1, join_padded([stored.to(like) for stored in pos], 1))

    def _join_state(self, path: LayerPath, other: DecodingCache) -> None:
        """Join recurrent states; rows that have none yet get the initial one in `get_state`."""
        like = self.states.get(path, other.states.get(path))
        assert like is not None
        states, fresh = [], []
        for cache in (self, other):
            state = cache.states.get(path)
            without_state = torch.full((cache.rows,), state is None, device=like.device)
            states.append(like.new_zeros(cache.rows, *like.shape[1:]) if state is None else state)
            fresh.append(cache.fresh.get(path, without_state))
        self.states[path] = torch.cat(states)
        if any(bool(rows.any()) for rows in fresh):
            self.fresh[path] = torch.cat(fresh)


def join_padded(tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate rows of tensors, the shorter ones padded with zeros at the end of `dim`."""
    longest = max(tensor.shape[dim] for tensor in tensors)
    padded = []
    for tensor in tensors:
        shape = list(tensor.shape)
        shape[dim] = longest - shape[dim]
        padded.append(torch.cat((tensor, tensor.new_zeros(shape)), dim) if shape[dim] else tensor)
    return torch.cat(padded)


def join_streams(streams: Sequence[Stream]) -> Stream:
    """Concatenate rows of streams: columns that are padding in every row are dropped, shorter streams are padded."""
    if len({stream.grid for stream in streams}) > 1:
        raise UserError("join: images on different grids cannot share a state; start them in separate ones")
    streams = [trim_padding(stream) for stream in streams]
    lengths = [stream.x.shape[1] for stream in streams]
    keeps = [stream.keep for stream in streams]
    keep = None
    if len(set(lengths)) > 1 or any(mask is not None for mask in keeps):
        masks = zip(streams, keeps, strict=True)
        keep = join_padded(
            [torch.ones_like(stream.x[..., 0], dtype=torch.bool) if mask is None else mask for stream, mask in masks], 1
        )
    longest = max(streams, key=lambda stream: stream.x.shape[1])
    pos = longest.pos
    if any(stream.pos.dim() > 1 or not torch.equal(stream.pos, pos[: len(stream.pos)]) for stream in streams):
        pos = join_padded([stream.pos.expand(len(stream.x), -1) for stream in streams], 1)
    segment, tree = (
        join_padded([getattr(stream, name) for stream in streams], 1) if getattr(longest, name) is not None else None
        for name in ("segment", "tree")
    )
    return Stream(join_padded([stream.x for stream in streams], 1), pos, keep, longest.grid, segment, tree)


def trim_padding(stream: Stream) -> Stream:
    """Drop the columns at the end of a stream that are padding in every row."""
    if stream.keep is None:
        return stream
    real = stream.keep.any(0).nonzero()[:, 0]
    length = int(real[-1]) + 1 if len(real) else 1
    return replace(stream.take_first(length), grid=stream.grid)


def select_rows(value: Any, rows: Tensor) -> Any:
    """Rows of a tensor, or of every batched tensor inside a tuple, dict or dataclass."""
    if isinstance(value, Tensor):
        return value.index_select(0, rows)
    if isinstance(value, tuple):
        return tuple(select_rows(item, rows) for item in value)
    if isinstance(value, dict):
        return {key: select_rows(item, rows) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        values = {field.name: getattr(value, field.name) for field in fields(value)}
        batched = {name: item for name, item in values.items() if isinstance(item, Tensor) and item.dim() > 1}
        return replace(value, **{name: item.index_select(0, rows) for name, item in batched.items()})
    return value
