"""The KV cache of step-by-step decoding: keys and values in preallocated buffers, by path in the stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.blocks.stream import Cache, LayerPath, Made, Stream
from headwise.errors import UserError


class GrowingBuffer:
    """Tensors that grow along one dimension, in buffers twice as long as what is kept whenever they are full."""

    __slots__ = ("buffers", "dim", "length")

    def __init__(self, dim: int):
        self.dim = dim
        self.length = 0
        self.buffers: list[Tensor] = []

    def extend(self, new: tuple[Tensor, ...], capacity: int, limit: int = 0) -> tuple[Tensor, ...]:
        """The last `limit` of what was there (0: all of it), then `new`."""
        more = new[0].shape[self.dim]
        kept = min(self.length, limit or self.length)
        if not self.buffers or self.length + more > self.buffers[0].shape[self.dim]:
            self._grow(new, kept, max(capacity, 2 * (kept + more)))
        for buffer, tensor in zip(self.buffers, new, strict=True):
            buffer.narrow(self.dim, self.length, more).copy_(tensor)
        first, self.length = self.length - kept, self.length + more
        return tuple(buffer.narrow(self.dim, first, kept + more) for buffer in self.buffers)

    def _grow(self, new: tuple[Tensor, ...], kept: int, capacity: int) -> None:
        fresh = []
        for tensor in new:
            shape = list(tensor.shape)
            shape[self.dim] = capacity
            fresh.append(tensor.new_empty(shape))
        for buffer, old in zip(fresh, self.buffers, strict=False):  # nothing to carry over the first time
            buffer.narrow(self.dim, 0, kept).copy_(old.narrow(self.dim, self.length - kept, kept))
        self.buffers, self.length = fresh, kept

    def contents(self, limit: int = 0) -> tuple[Tensor, ...]:
        """The last `limit` of what is there (0: all of it)."""
        kept = min(self.length, limit or self.length)
        return tuple(buffer.narrow(self.dim, self.length - kept, kept) for buffer in self.buffers)

    def select(self, rows: Tensor) -> None:
        if self.dim == 0:
            return  # shared by all rows
        for number, buffer in enumerate(self.buffers):
            used = buffer.narrow(self.dim, 0, self.length).index_select(0, rows)
            if len(rows) < len(buffer):
                self.buffers[number] = buffer = buffer[: len(rows)]
            buffer.narrow(self.dim, 0, self.length).copy_(used)


class DecodingCache(Cache):
    """The KV cache: stores tensors by path; of those that grow, the last `limit` (0: all). Rows of one source are
    contiguous: source s has rows s*beams ... s*beams+beams-1."""

    def __init__(self, rows: int, beams: int = 1, capacity: int = 32, limit: int = 0):
        self.rows = rows
        self.beams = beams
        self.capacity = capacity
        self.limit = limit
        self.growing: dict[LayerPath, GrowingBuffer] = {}
        self.keep: dict[LayerPath, GrowingBuffer] = {}  # padding masks (R, T) of what grows, where there is padding
        self.positions: dict[LayerPath, GrowingBuffer] = {}  # (T,), or (R, T) where rows have different lengths
        self.states: dict[LayerPath, Tensor] = {}
        self.fresh: dict[LayerPath, Tensor] = {}  # (R,) rows that joined before they had a state
        self.made: dict[LayerPath, Any] = {}
        self.source_dims: dict[LayerPath, int] = {}  # of what is made once, where it can be padded

    def extend(self, path: LayerPath, dim: int, *new: Tensor) -> tuple[Tensor, ...]:
        entry = self.growing.get(path)
        if entry is None:
            entry = self.growing[path] = GrowingBuffer(dim)
        return entry.extend(new, self.capacity, self._limit(path))

    def extend_keep(self, path: LayerPath, stream: Stream) -> Tensor | None:
        entry = self.keep.get(path)
        if entry is None and stream.keep is None:
            return None
        rows, new, _ = stream.x.shape
        keep = stream.keep if stream.keep is not None else stream.pos.new_ones((rows, new), dtype=torch.bool)
        columns = None  # of what `extend` has just returned: all
        if entry is None:  # the first padding: all tokens before were real
            before = self.growing[path].length - new if path in self.growing else 0
            columns = min(before, self.limit) + new if self.limit else None
            entry = self.keep[path] = self._buffer(1, keep.new_ones(rows, before))
        (keep,) = entry.extend((keep,), self.capacity)
        if self.limit:  # of each row the last tokens, its padding not counted
            keep &= keep.flip(1).cumsum(1).flip(1) <= self.limit + new
        return keep if columns is None else keep[:, -columns:]

    def extend_positions(self, path: LayerPath, pos: Tensor) -> Tensor:
        entry = self.positions.get(path)
        if entry is None:
            entry = self.positions[path] = GrowingBuffer(pos.dim() - 1)
        return entry.extend((pos,), self.capacity, self._limit(path))[0]

    def _limit(self, path: LayerPath) -> int:
        """How many columns are kept; where rows have padding, the mask says which tokens are seen."""
        return 0 if path in self.keep else self.limit

    def once(self, path: LayerPath, make: Callable[[], Made], dim: int | None = None) -> Made:
        if path not in self.made:
            self.made[path] = make()
            if dim is not None:
                self.source_dims[path] = dim
        return self.made[path]

    def state(self, path: LayerPath, initial: Callable[[], Tensor]) -> Tensor:
        if path not in self.states:
            return initial()
        if path not in self.fresh:
            return self.states[path]
        state, fresh = self.states[path], self.fresh.pop(path)
        return torch.where(fresh.view(-1, *(1,) * (state.dim() - 1)), initial(), state)

    def put(self, path: LayerPath, value: Tensor) -> None:
        self.states[path] = value

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order. What is kept once per source changes only when sources go."""
        for entry in (*self.growing.values(), *self.keep.values(), *self.positions.values()):
            entry.select(rows)
        self.states = {path: value.index_select(0, rows) for path, value in self.states.items()}
        self.fresh = {path: value.index_select(0, rows) for path, value in self.fresh.items()}
        if self.moves_sources(rows):
            sources = self.sources(rows)
            self.made.update({path: select_rows(value, sources) for path, value in self.made.items()})
            self.rows = len(rows)

    def moves_sources(self, rows: Tensor) -> bool:
        """Whether sources go or, where each has one row, may change places; beams of one only move within it."""
        return len(rows) < self.rows or self.beams == 1

    def sources(self, rows: Tensor) -> Tensor:
        """The numbers of the sources that these rows belong to."""
        return torch.div(rows[:: self.beams], self.beams, rounding_mode="floor")

    def compact(self, ragged: bool) -> None:
        """Move the real tokens of each row to the left, and drop the columns that no row needs any more. Rows of one
        length (not `ragged`) need no mask, and share their positions."""
        for path, entry in list(self.keep.items()):
            keep, order = entry.contents()[0].sort(dim=1, descending=True, stable=True)  # (R, T)
            width = int(keep.sum(1).max())
            keep, order = keep[:, :width], order[:, :width]
            self.growing[path] = self._gathered(self.growing[path], order)
            if path in self.positions:
                positions = self._gathered(self.positions[path], order)
                self.positions[path] = positions if ragged else self._buffer(0, positions.contents()[0][0])
            if ragged:
                self.keep[path] = self._buffer(1, keep)
            else:
                del self.keep[path]

    def join(self, other: DecodingCache, ragged: bool) -> None:
        """Append the rows of another cache. Where some are shorter (`ragged`), they are padded on the right."""
        both = (self, other)
        for path in {**self.growing, **other.growing}:
            like = (self.growing.get(path) or other.growing[path]).contents()
            dim = (self.growing.get(path) or other.growing[path]).dim
            tensors = [cache._tokens(path, like, dim) for cache in both]
            if path in self.positions or path in other.positions:
                self._join_positions(path, other, ragged)
            if ragged:
                masks = [cache._mask(path, pair[0], dim) for cache, pair in zip(both, tensors, strict=True)]
                self.keep[path] = self._buffer(1, join_padded(masks, 1))
            self.growing[path] = self._buffer(dim, *(join_padded(pair, dim) for pair in zip(*tensors, strict=True)))
        for path in {**self.states, **other.states}:
            self._join_state(path, other)
        for path in list(self.made):
            mine, theirs = self.made.pop(path), other.made.get(path)
            if path in self.source_dims and theirs is not None:  # the rest is made again
                pairs = zip(mine, theirs, strict=True)
                self.made[path] = tuple(join_padded(pair, self.source_dims[path]) for pair in pairs)
        self.rows += other.rows

    def _gathered(self, entry: GrowingBuffer, order: Tensor) -> GrowingBuffer:
        """The columns of an entry in another order for each row, (R, T)."""
        shape = [len(order), *(1,) * (entry.buffers[0].dim() - 1)]
        shape[entry.dim] = order.shape[1]
        tensors = (tensor.take_along_dim(order.view(shape), entry.dim) for tensor in entry.contents())
        return self._buffer(entry.dim, *tensors)

    def _buffer(self, dim: int, *tensors: Tensor) -> GrowingBuffer:
        entry = GrowingBuffer(dim)
        entry.extend(tensors, self.capacity)
        return entry

    def _tokens(self, path: LayerPath, like: tuple[Tensor, ...], dim: int) -> tuple[Tensor, ...]:
        """What is stored at `path`; where there is nothing yet, no tokens of the shape that others have."""
        if path in self.growing:
            return self.growing[path].contents(self._limit(path))
        none = (tensor.narrow(dim, 0, 0)[:1] for tensor in like)
        return tuple(tensor.expand(self.rows, *tensor.shape[1:]) for tensor in none)

    def _mask(self, path: LayerPath, tokens: Tensor, dim: int) -> Tensor:
        """Which of the tokens at `path` are real, (R, T)."""
        if path in self.keep:
            return self.keep[path].contents()[0]
        return tokens.new_ones((self.rows, tokens.shape[dim]), dtype=torch.bool)

    def _join_positions(self, path: LayerPath, other: DecodingCache, ragged: bool) -> None:
        if not ragged and path in self.positions:
            return  # those of all rows are the same
        pos = []
        for cache in (self, other):
            stored = (
                cache.positions[path].contents(cache._limit(path))[0] if path in cache.positions else torch.empty(0)
            )
            pos.append(stored if stored.dim() == 2 else stored.expand(cache.rows, -1))
        like = next(stored for stored in pos if stored.shape[1])
        self.positions[path] = self._buffer(1, join_padded([stored.to(like) for stored in pos], 1))

    def _join_state(self, path: LayerPath, other: DecodingCache) -> None:
        """States of all rows; those that have none yet get it when it is asked for."""
        like = self.states.get(path, other.states.get(path))
        assert like is not None
        states, fresh = [], []
        for cache in (self, other):
            state = cache.states.get(path)
            begun = torch.full((cache.rows,), state is None, device=like.device)
            states.append(like.new_zeros(cache.rows, *like.shape[1:]) if state is None else state)
            fresh.append(cache.fresh.get(path, begun))
        self.states[path] = torch.cat(states)
        if any(bool(rows.any()) for rows in fresh):
            self.fresh[path] = torch.cat(fresh)


def join_padded(tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Rows of several tensors, the shorter ones padded with zeros at the end of `dim`."""
    longest = max(tensor.shape[dim] for tensor in tensors)
    padded = []
    for tensor in tensors:
        shape = list(tensor.shape)
        shape[dim] = longest - shape[dim]
        padded.append(torch.cat((tensor, tensor.new_zeros(shape)), dim) if shape[dim] else tensor)
    return torch.cat(padded)


def join_streams(streams: Sequence[Stream]) -> Stream:
    """Memories of several states as one: columns in which no row has a real token go, shorter ones are padded."""
    if len({stream.grid for stream in streams}) > 1:
        raise UserError("join: images on different grids cannot share a state; start them in separate ones")
    streams = [trim(stream) for stream in streams]
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


def trim(stream: Stream) -> Stream:
    """The stream without the columns at its end that are padding in every row."""
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
        batched = {f.name: getattr(value, f.name) for f in fields(value)}
        changed = {
            name: select_rows(item, rows)
            for name, item in batched.items()
            if isinstance(item, Tensor) and item.dim() > 1
        }
        return replace(value, **changed)
    return value
