"""Looking inside: attention maps of every head, whatever kernel computed them, and what parts report beside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.blocks.attention.kernels import weights
from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs
from headwise.blocks.stream import (
    NO_RECORD,
    NO_SIDE,
    RECORDER,
    SIDE,
    ForwardingRecorder,
    LayerPath,
    Recorder,
    SideOutputs,
)

OUTPUTS = "outputs"  # where queries look at latents (blocks/latents.py)


class AttentionRecord(ForwardingRecorder):
    """The attention maps of one or more calls: attention weights by place in the model, (B, H, Tq, Tk), in the order in
    which they were computed.

    Fused kernels never form the weights, so they are computed again by the plain kernel, from the same inputs. Mixers
    that approximate or replace attention report the map that they imply; `exact` has the weights of softmax attention
    for the same queries and keys. Inputs are also passed on to the recorder that was active before.
    """

    def __init__(self, onward: Recorder = NO_RECORD) -> None:
        super().__init__(onward)
        self.weights: dict[LayerPath, list[Tensor]] = {}
        self.exact: dict[LayerPath, list[Tensor]] = {}
        self.kinds: dict[LayerPath, str] = {}

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        self.kinds[path] = kind_of(path, inputs)
        with torch.no_grad():
            if isinstance(inputs, ApproximateMap):
                seen, exact = inputs.weights(), None if inputs.exact is None else weights(inputs.exact())
            else:
                seen = exact = weights(replace(inputs, side=NO_SIDE))  # the kernel reports
        self.weights.setdefault(path, []).append(seen)
        if exact is not None:
            self.exact.setdefault(path, []).append(exact)
        super().observe(path, inputs)

    def of(self, *start: int | str) -> dict[LayerPath, Tensor]:
        """The maps whose place begins with `start`; the steps of a decoding are not joined, the last one counts."""
        return {path: maps[-1] for path, maps in self.weights.items() if path[: len(start)] == start}

    def by_kind(self, row: int = 0) -> dict[str, np.ndarray]:
        """The maps of one row of the batch as (layers, heads, queries, keys), by their kind (`kind_of`);
        NaN where a layer has fewer heads than another."""
        return self._stacked(self.weights, row)

    def approximated(self, row: int = 0) -> dict[str, np.ndarray]:
        """The exact maps in the same form, of kinds in which some layer has others; NaN where a layer has none."""
        seen, exact = self.by_kind(row), self._stacked(self.exact, row)
        return {kind: maps for kind, maps in exact.items() if ((maps != seen[kind]) & ~np.isnan(maps)).any()}

    def _stacked(self, maps: dict[LayerPath, list[Tensor]], row: int) -> dict[str, np.ndarray]:
        found: dict[str, list[Tensor]] = {}
        for path, kind in self.kinds.items():
            blank = torch.full_like(self.weights[path][-1], torch.nan)
            found.setdefault(kind, []).append(maps.get(path, [blank])[-1][row].float())
        return {kind: torch.stack(alike(each)).cpu().numpy() for kind, each in found.items()}


def kind_of(path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> str:
    """Whether it is attention across two streams, or in which stack it stands. What asks latents for outputs looks
    across as well, but not at what was read."""
    stack = str(path[0]) if path else ""
    return "cross" if inputs.is_cross and stack != OUTPUTS else stack


def alike(maps: Sequence[Tensor]) -> list[Tensor]:
    """Maps (H, Tq, Tk) with as many heads each, of which those that were not there are NaN."""
    most = max(map(len, maps))
    return [F.pad(each, (0, 0, 0, 0, 0, most - len(each)), value=torch.nan) for each in maps]


@contextmanager
def record() -> Iterator[AttentionRecord]:
    """Record the attention of every model that is called inside the block.

    >>> from headwise import build
    >>> model = build("transformer-tiny", vocab=20).eval()
    >>> ids = torch.tensor([[5, 6, 7, 2]])
    >>> with record() as maps:
    ...     _ = model(ids, ids)
    >>> [(path, tuple(w.shape)) for path, w in maps.of("decoder", 0).items()]
    [(('decoder', 0, 0), (1, 4, 4, 4)), (('decoder', 0, 1), (1, 4, 4, 4))]
    """
    maps = AttentionRecord(onward=RECORDER.get())
    token = RECORDER.set(maps)
    try:
        yield maps
    finally:
        RECORDER.reset(token)


class Collector(SideOutputs):
    """Side outputs by name and place, in the order in which they came; of all names unless some are given. What
    comes is also passed on, to whoever collected before."""

    def __init__(self, *names: str, onward: SideOutputs = NO_SIDE):
        self.names, self.onward = frozenset(names), onward
        self.values: dict[str, dict[LayerPath, list[Any]]] = {}

    def add(self, name: str, path: LayerPath, value: Any) -> None:
        if not self.names or name in self.names:
            self.values.setdefault(name, {}).setdefault(path, []).append(value)
        self.onward.add(name, path, value)

    def wants(self, name: str) -> bool:
        return not self.names or name in self.names or self.onward.wants(name)

    def all(self, name: str) -> list[Any]:
        """What was collected under a name, from all places."""
        return [value for values in self.values.get(name, {}).values() for value in values]


@contextmanager
def collect(*names: str) -> Iterator[Collector]:
    """Collect what the parts of every model that is called inside the block report.

    >>> from headwise import build
    >>> model, ids = build("transformer-tiny", vocab=20), torch.tensor([[5, 6, 7, 2]])
    >>> with collect("layer") as side:
    ...     _ = model(ids, ids)
    >>> list(side.values["layer"])
    [('encoder', 0), ('encoder', 1), ('decoder', 0), ('decoder', 1)]
    """
    side = Collector(*names, onward=SIDE.get())
    token = SIDE.set(side)
    try:
        yield side
    finally:
        SIDE.reset(token)
