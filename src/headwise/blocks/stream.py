"""What flows through a stack, and what one call carries beside it.

Letters: B rows of a batch, T length, C width, H heads, D head_width.

A `Stream` is a frozen value; a `Context` belongs to one call of a model. Nothing of a call is ever stored
on a module, so a module may stand in a stack twice, be called from two threads, or be shared by two models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

Place = tuple[int | str, ...]
REAL = "real"  # where `Context.shared` has which of a decoder's tokens are real: its streams say it of none
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Stream:
    """Vectors and where they stand."""

    x: Tensor  # (B, T, C)
    pos: Tensor  # (T,) or (B, T): places in the sequence, for score mods that need distances
    keep: Tensor | None = None  # (B, T) True = real token; None: all are real
    grid: tuple[int, int] | None = None  # rows and columns of an image
    segment: Tensor | None = None  # (B, T) number of the packed document
    tree: Tensor | None = None  # (B, T) heads of the words in a dependency tree, from 1; 0: the root

    @classmethod
    def of(cls, x: Tensor, keep: Tensor | None = None, start: int = 0) -> Stream:
        """A stream of consecutive positions."""
        return cls(x, torch.arange(start, start + x.shape[1], device=x.device), keep)

    def carrying(self, x: Tensor) -> Stream:
        """Other vectors at the same places."""
        return Stream(x, self.pos, self.keep, self.grid, self.segment, self.tree)

    def leading(self, count: int) -> Stream:
        """The first tokens alone, on no grid."""
        keep, segment, tree = (None if of is None else of[:, :count] for of in (self.keep, self.segment, self.tree))
        return Stream(self.x[:, :count], self.pos[..., :count], keep, None, segment, tree)


class Cache:
    """What earlier steps left behind. This one is the null cache: nothing went before.

    Parts call it in training too, so no part asks whether it is decoding.
    """

    def extend(self, place: Place, dim: int, *new: Tensor) -> tuple[Tensor, ...]:
        """All of the tensors that grow along `dim`: what earlier calls left at `place`, then `new`."""
        return new

    def carry(self, place: Place, stream: Stream) -> Stream:
        """What the segments before left at `place`, then `stream`, which is left for the next."""
        return stream

    def once(self, place: Place, make: Callable[[], Made]) -> Made:
        """What the first call made at `place` (one row for each source, whatever the number of beams)."""
        return make()

    def state(self, place: Place, initial: Callable[[], Tensor]) -> Tensor:
        """The state that `put` left at `place`, for parts that carry running sums or hidden states."""
        return initial()

    def put(self, place: Place, value: Tensor) -> None:
        """Leave a state for the next call."""


class Side:
    """Named side outputs (router losses, layer outputs). This one is null: nobody collects them."""

    def add(self, name: str, place: Place, value: Any) -> None:
        """Take one value."""

    def wants(self, name: str) -> bool:
        """Whether somebody will look at what is added under a name."""
        return False


class Recorder:
    """Sees every look of every attention, and may change what goes in and comes out (`blocks.intervene`). This one is
    null: nobody looks, and all stays as it is."""

    def observe(self, place: Place, inputs: Any) -> None:
        """Take one look (`blocks.inputs.AttentionInputs`, or `ApproximateMap` by a mixer of another kind)."""

    def before(self, place: Place, inputs: Any) -> Any:
        """The look that is taken instead of this one."""
        return inputs

    def heads(self, place: Place, mixed: Tensor) -> Tensor:
        """What the heads give, (B, H, T, D), before one projection joins them."""
        return mixed

    def after(self, place: Place, x: Tensor) -> Tensor:
        """What a part gives, (B, T, C)."""
        return x


class Passing(Recorder):
    """Passes everything on to another recorder; what a subclass does comes before or after that."""

    def __init__(self, onward: Recorder):
        self.onward = onward

    def observe(self, place: Place, inputs: Any) -> None:
        self.onward.observe(place, inputs)

    def before(self, place: Place, inputs: Any) -> Any:
        return self.onward.before(place, inputs)

    def heads(self, place: Place, mixed: Tensor) -> Tensor:
        return self.onward.heads(place, mixed)

    def after(self, place: Place, x: Tensor) -> Tensor:
        return self.onward.after(place, x)


NO_CACHE, NO_SIDE, NO_RECORD = Cache(), Side(), Recorder()
RECORDER: ContextVar[Recorder] = ContextVar("recorder", default=NO_RECORD)
SIDE: ContextVar[Side] = ContextVar("side", default=NO_SIDE)


@dataclass(frozen=True, slots=True)
class Context:
    """What one call carries: memory to attend to, cache, collectors, and the place in the stack."""

    memory: Mapping[str, Stream] = field(default_factory=dict)
    cache: Cache = NO_CACHE
    side: Side = field(default_factory=SIDE.get)
    record: Recorder = field(default_factory=RECORDER.get)
    place: Place = ()
    shared: dict[Any, Any] = field(default_factory=dict)  # what layers of one call may reuse, such as masks
    asked: int | None = None  # how many of the first outputs are read; the others may be left out. None: all are read

    def at(self, step: int | str, asked: int | None = None) -> Context:
        """The same call, one step further down; cache entries belong to places, not to modules. What is asked for is
        told anew at each step: only the last one's outputs are those of the whole."""
        return Context(self.memory, self.cache, self.side, self.record, (*self.place, step), self.shared, asked)
