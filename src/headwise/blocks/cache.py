"""The KV cache of step-by-step decoding: keys and values in preallocated buffers, by path in the stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.blocks.stream import Cache, LayerPath, Made


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
        self.states: dict[LayerPath, Tensor] = {}
        self.made: dict[LayerPath, Any] = {}

    def extend(self, path: LayerPath, dim: int, *new: Tensor) -> tuple[Tensor, ...]:
        entry = self.growing.get(path)
        if entry is None:
            entry = self.growing[path] = GrowingBuffer(dim)
        return entry.extend(new, self.capacity, self.limit)

    def once(self, path: LayerPath, make: Callable[[], Made]) -> Made:
        if path not in self.made:
            self.made[path] = make()
        return self.made[path]

    def state(self, path: LayerPath, initial: Callable[[], Tensor]) -> Tensor:
        return self.states[path] if path in self.states else initial()

    def put(self, path: LayerPath, value: Tensor) -> None:
        self.states[path] = value

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order. What is kept once per source changes only when sources go."""
        for entry in self.growing.values():
            entry.select(rows)
        self.states = {path: value.index_select(0, rows) for path, value in self.states.items()}
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
