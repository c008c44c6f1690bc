"""The KV cache of step-by-step decoding: keys and values in preallocated buffers, by path in the stack.

Letters: R rows, T length.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.blocks.row_buffers import GrowingBuffer, PaddedRows, RowMoves
from headwise.blocks.stream import Cache, LayerPath, Stream, Value


class SourceMoves(NamedTuple):
    """Sources that leave or change places."""

    sources: Tensor  # (B,) all that are left, in their order
    moves: RowMoves


class DecodingCache(Cache):
    """The KV cache: tensors by path in the stack. Of those that grow the last `limit` columns are kept (0: all). Rows
    of one source are contiguous: source s has rows s*beams ... s*beams+beams-1.

    Where rows have read different numbers of tokens, shorter ones have `padding` before their first token, so that the
    newest token of every row is in the last column."""

    def __init__(self, rows: int, beams: int = 1, capacity: int = 32, limit: int = 0):
        self.rows = rows
        self.beams = beams
        self.origins = torch.arange(rows // beams)  # (B,) equal numbers = the same source, in several rows
        self.capacity = capacity
        self.limit = limit
        self.padding: Tensor | None = None  # (R, 1) columns before the first token of each row; None: there are none
        self.growing: dict[LayerPath, GrowingBuffer] = {}
        self.keep: dict[LayerPath, GrowingBuffer] = {}  # padding masks (R, T) of streams that had one
        self.positions: dict[LayerPath, GrowingBuffer] = {}  # (T,), or (R, T) where rows have different lengths
        self.states: dict[LayerPath, Tensor] = {}
        self.fresh: dict[LayerPath, Tensor] = {}  # (R,) True = a row that joined before it had a state
        self.per_source: dict[LayerPath, Any] = {}  # what `compute_once` computed
        self.source_dims: dict[LayerPath, int] = {}  # dimension of the source's tokens in `per_source`, to be padded
        self.source_rows: dict[LayerPath, PaddedRows] = {}  # the buffers of `per_source` after sources have joined
        self.masks: dict[str, Tensor] = {}  # of the padding: for more columns than there are
        self.views: dict[Hashable, Tensor] = {}  # parts of the masks that the layers of one step share

    def extend(self, path: LayerPath, dim: int, *new: Tensor) -> tuple[Tensor, ...]:
        entry = self.growing.get(path)
        if entry is None:
            entry = self.growing[path] = GrowingBuffer(dim)
        return entry.extend(new, self.capacity, self.limit and self._get_limit(path))

    def extend_keep(self, path: LayerPath, stream: Stream) -> Tensor | None:
        if self.padding is not None:
            return self._read_mask(path, "keep", stream.x.shape[1], self._build_keep)
        entry = self.keep.get(path)
        if entry is None and stream.keep is None:
            return None
        rows, added, _ = stream.x.shape
        keep = stream.keep if stream.keep is not None else stream.pos.new_ones((rows, added), dtype=torch.bool)
        columns = None  # number of columns that `extend` has just returned; None: all
        if entry is None:  # the first padding: all tokens before were real
            before = self.growing[path].width - added if path in self.growing else 0
            columns = min(before, self.limit) + added if self.limit else None
            entry = self.keep[path] = self._make_buffer(1, keep.new_ones(rows, before))
        (keep,) = entry.extend((keep,), self.capacity)
        if self.limit:  # the last tokens of each row, its padding not counted
            keep &= keep.flip(1).cumsum(1).flip(1) <= self.limit + added
        return keep if columns is None else keep[:, -columns:]

    def build_mask(self, path: LayerPath, stream: Stream) -> Tensor | None:
        if self.padding is None:
            return super().build_mask(path, stream)
        dtype = stream.x.dtype
        mask = self._read_mask(path, str(dtype), stream.x.shape[1], lambda columns: self._build_scores(columns, dtype))
        return mask[:, None, None]

    def extend_positions(self, path: LayerPath, pos: Tensor) -> Tensor:
        if self.padding is not None:
            return self._read_mask(path, "positions", pos.shape[-1], self._build_positions)
        entry = self.positions.get(path)
        if entry is None:
            entry = self.positions[path] = GrowingBuffer(pos.dim() - 1)
            before = self.growing[path].total - pos.shape[-1] if path in self.growing else 0
            if before:  # of rows that had padding until now
                entry.extend((torch.arange(before, device=pos.device),), self.capacity)
        return entry.extend((pos,), self.capacity, self._get_limit(path))[0]

    def _get_limit(self, path: LayerPath) -> int:
        """The number of columns to keep (0: all); where rows have padding, the mask drops the others."""
        return 0 if path in self.keep else self.limit

    def _read_mask(self, path: LayerPath, name: str, added: int, build: Callable[[int], Tensor]) -> Tensor:
        """The columns of a mask (R, T) that belong to those which `extend` has just returned."""
        entry = self.growing[path]
        total = entry.total
        shown = min(entry.width, self.limit + added) if self.limit else entry.width
        key = (name, total, shown)
        view = self.views.get(key)  # one tensor for all layers of a step
        if view is None:
            mask = self.masks.get(name)
            if mask is None or mask.shape[1] < total:
                mask = self.masks[name] = build(total + self.capacity)
            self.views = {other: value for other, value in self.views.items() if other[1:] == key[1:]}  # type: ignore[index]
            view = self.views[key] = mask[:, total - shown : total]
        return view

    def _build_keep(self, columns: int) -> Tensor:
        assert self.padding is not None
        return torch.arange(columns, device=self.padding.device) >= self.padding

    def _build_scores(self, columns: int, dtype: torch.dtype) -> Tensor:
        """The mask as scores to add."""
        keep = self._build_keep(columns)
        return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(~keep, -torch.inf)

    def _build_positions(self, columns: int) -> Tensor:
        assert self.padding is not None
        return (torch.arange(columns, device=self.padding.device) - self.padding).clamp(min=0)

    def set_padding(self, padding: Tensor | None) -> None:
        """Set the columns (R, 1) before the first token of each row."""
        self.padding = padding
        self.masks.clear()
        self.views.clear()
        self.positions.clear()  # they follow from the columns

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

    def select(self, rows: Tensor) -> SourceMoves | None:
        """Keep these rows, in this order; a row may be repeated. Only rows that change their place are copied. Returns
        what that does to the sources; None: nothing."""
        moves = RowMoves.from_order(rows)
        if not len(moves.to) and moves.count == self.rows:
            return None
        for entry in (*self.growing.values(), *self.keep.values(), *self.positions.values()):
            entry.move(moves)
        self.states = {path: value.index_select(0, rows) for path, value in self.states.items()}
        self.fresh = {path: value.index_select(0, rows) for path, value in self.fresh.items()}
        if self.padding is not None:
            self.set_padding(self.padding.index_select(0, rows))
        source_moves = self._select_sources(rows) if self.moves_sources(rows) else None
        self.rows = len(rows)
        return source_moves

    def _select_sources(self, rows: Tensor) -> SourceMoves | None:
        """Rows that exchange places do not move sources if both belong to the same one."""
        sources = self.find_sources(rows)
        origins = self.origins.to(rows.device)[sources]
        moves = RowMoves.from_order(sources).drop_equal(self.origins.to(rows.device), origins)
        moved = len(moves.to) or len(sources) != len(self.origins)
        self.origins = origins
        if not moved:
            return None
        for path, value in self.per_source.items():
            if path in self.source_rows:
                self.source_rows[path].move(moves)
                self.per_source[path] = self.source_rows[path].read()
            else:
                self.per_source[path] = select_rows(value, sources)
        return SourceMoves(sources, moves)

    def moves_sources(self, rows: Tensor) -> bool:
        """Whether sources leave or, where each has one row, may change places; beams only move within their source."""
        return len(rows) != self.rows or self.beams == 1

    def find_sources(self, rows: Tensor) -> Tensor:
        """The indices of the sources that these rows belong to."""
        return torch.div(rows[:: self.beams], self.beams, rounding_mode="floor")

    def align(self, padding: Tensor) -> None:
        """Move the padding that prompts had, (R, 1) columns, before the first token of each row."""
        for path, entry in self.keep.items():
            order = entry.read()[0].sort(dim=1, stable=True)[1]  # (R, T) padding first
            growing = self.growing[path]
            shape = [*order.shape[:1], *(1,) * (growing.buffers[0].dim() - 1)]
            shape[growing.dim] = order.shape[1]
            columns = (tensor.take_along_dim(order.view(shape), growing.dim) for tensor in growing.read())
            self.growing[path] = self._make_buffer(growing.dim, *columns)
        self.keep.clear()
        self.set_padding(padding)

    def forget(self, columns: int, padding: Tensor | None) -> None:
        """Drop the first columns, which no row needs any more; `padding` is what is left of it."""
        for entry in self.growing.values():
            entry.forget(entry.total - columns)
        self.set_padding(padding)

    def join(self, other: DecodingCache, padding: Tensor | None) -> None:
        """Append the rows of another cache; `padding` (R, 1) is that of all rows together. Only the new rows are
        copied."""
        for path in {**self.growing, **other.growing}:
            like = other.growing.get(path) or self.growing[path]
            entry = self.growing.get(path)
            if entry is None:
                entry = self.growing[path] = GrowingBuffer(like.dim)
                entry.rows = self.rows
            empty = [tensor.narrow(like.dim, 0, 0)[:1] for tensor in like.read()]
            new = (
                other.growing[path].read_last(self.limit)
                if path in other.growing
                else tuple(tensor.expand(other.rows, *tensor.shape[1:]) for tensor in empty)
            )
            entry.join(new, other.growing[path].total if path in other.growing else 0, self.capacity)
        for path in {**self.states, **other.states}:
            self._join_state(path, other)
        for path in list(self.per_source):
            self._join_source(path, other)
        self.rows += other.rows
        first = int(self.origins.max()) + 1 if len(self.origins) else 0
        self.origins = torch.cat((self.origins, other.origins.to(self.origins) + first))
        self.set_padding(padding)

    def copy_row(self, row: int, read: int, length: int) -> DecodingCache:
        """A cache of its own for a row that has `read` tokens, as it was after `length`."""
        copy = DecodingCache(1, 1, self.capacity, self.limit)
        one = torch.tensor([row])
        for path, entry in self.growing.items():
            columns = min(read, entry.width)
            last = (view[row : row + 1].narrow(entry.dim, entry.end - columns, columns) for view in entry.views)
            first = tuple(tensor.narrow(entry.dim, 0, columns - (read - length)) for tensor in last)
            copy.growing[path] = GrowingBuffer(entry.dim)
            copy.growing[path].join(first, length, self.capacity)
        copy.states = {path: state[row : row + 1].clone() for path, state in self.states.items()}
        copy.fresh = {path: fresh[row : row + 1].clone() for path, fresh in self.fresh.items()}
        copy.per_source = {path: select_rows(value, one) for path, value in self.per_source.items()}
        copy.source_dims = dict(self.source_dims)
        return copy

    def _join_source(self, path: LayerPath, other: DecodingCache) -> None:
        """Join what is stored once per source; what has no dimension of tokens is computed again."""
        value, other_value = self.per_source.pop(path), other.per_source.get(path)
        rows = self.source_rows.pop(path, None)
        if path in self.source_dims and other_value is not None:
            rows = rows or PaddedRows(self.source_dims[path], *value)
            rows.join(other_value)
            self.source_rows[path] = rows
            self.per_source[path] = rows.read()

    def narrow_sources(self, before: int, after: int) -> None:
        """Drop what is stored of the last tokens of sources: of `before` columns no row needs more than `after`. What
        has no dimension of tokens is computed again."""
        for path, value in list(self.per_source.items()):
            dim = self.source_dims.get(path)
            if dim is None:
                del self.per_source[path]
            elif value[0].shape[dim] == before:
                self.per_source[path] = tuple(tensor.narrow(dim, 0, after) for tensor in value)
                if path in self.source_rows:
                    self.source_rows[path].narrow(after)

    def _make_buffer(self, dim: int, *tensors: Tensor) -> GrowingBuffer:
        entry = GrowingBuffer(dim)
        entry.extend(tensors, self.capacity)
        return entry

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
