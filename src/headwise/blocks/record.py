"""Recording of attention maps, whatever kernel computed them, and collection of side outputs.

Letters: B rows, H heads, Tq queries, Tk keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.blocks.attention.kernels import compute_weights
from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs, AttentionLayout
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
from headwise.errors import UserError

OUTPUTS = "outputs"  # the stack in which output queries attend to latents (blocks/latents.py)


class AttentionRecord(ForwardingRecorder):
    """The attention maps of one or more calls: attention weights (B, H, Tq, Tk) by path in the model, in the order in
    which they were computed.

    Fused kernels never form the weights, so the plain kernel computes them again from the same inputs. Mixers that
    approximate or replace attention report the map that they amount to; `exact` has the weights of softmax attention
    for the same queries and keys. Inputs are forwarded to the recorder that was active before. `wanted` selects paths,
    where the maps of all of them would fill the memory.
    """

    def __init__(self, onward: Recorder = NO_RECORD, wanted: Callable[[LayerPath], bool] | None = None) -> None:
        super().__init__(onward)
        self.wanted = wanted
        self.weights: dict[LayerPath, list[Tensor]] = {}
        self.exact: dict[LayerPath, list[Tensor]] = {}
        self.kinds: dict[LayerPath, str] = {}
        self.layouts: dict[LayerPath, AttentionLayout] = {}

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        if self.wanted is None or self.wanted(path):
            self._compute(path, inputs)
        super().observe(path, inputs)

    def _compute(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        self.kinds[path] = get_attention_kind(path, inputs)
        with torch.no_grad():
            if isinstance(inputs, ApproximateMap):
                weights, exact = inputs.weights(), None if inputs.exact is None else compute_weights(inputs.exact())
            else:
                weights = exact = compute_weights(replace(inputs, side=NO_SIDE))  # the kernel adds side outputs itself
                self.layouts[path] = inputs.layout
        self.weights.setdefault(path, []).append(weights)
        if exact is not None:
            self.exact.setdefault(path, []).append(exact)

    def select(self, *start: int | str) -> dict[LayerPath, Tensor]:
        """The maps whose path begins with `start`; of several calls, such as decoding steps, those of the last."""
        return {path: maps[-1] for path, maps in self.weights.items() if path[: len(start)] == start}

    def stack_by_kind(self, row: int = 0) -> dict[str, np.ndarray]:
        """The maps of one row of the batch as (layers, heads, queries, keys), by kind (`get_attention_kind`); NaN where
        a layer has fewer heads than another. Maps of pooled tokens are expanded to all tokens (`expand_pooled`)."""
        return self._stack(self.weights, row)

    def stack_exact_by_kind(self, row: int = 0) -> dict[str, np.ndarray]:
        """The exact maps in the same form, of kinds with an approximate layer; NaN where a layer has no exact map."""
        recorded, exact = self.stack_by_kind(row), self._stack(self.exact, row)
        return {kind: maps for kind, maps in exact.items() if ((maps != recorded[kind]) & ~np.isnan(maps)).any()}

    def _stack(self, maps: dict[LayerPath, list[Tensor]], row: int) -> dict[str, np.ndarray]:
        by_kind: dict[str, dict[LayerPath, Tensor]] = {}
        for path, kind in self.kinds.items():
            missing = torch.full_like(self.weights[path][-1], torch.nan)
            by_kind.setdefault(kind, {})[path] = maps.get(path, [missing])[-1][row].float()
        return {
            kind: torch.stack(pad_heads(self._expand(layers, row))).cpu().numpy() for kind, layers in by_kind.items()
        }

    def _expand(self, layers: dict[LayerPath, Tensor], row: int) -> list[Tensor]:
        """The maps of a kind, those of layers with fewer queries or keys than another expanded to as many."""
        lengths = [max(weights.shape[axis] for weights in layers.values()) for axis in (1, 2)]
        return [
            weights
            if list(weights.shape[1:]) == lengths
            else expand_pooled(weights, self.layouts.get(path), lengths, row)
            for path, weights in layers.items()
        ]


def get_attention_kind(path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> str:
    """The kind of an attention: "cross", or the name of its stack. Output queries attend to latents, not to the input,
    so theirs have the name of their stack."""
    stack = str(path[0]) if path else ""
    return "cross" if inputs.is_cross and stack != OUTPUTS else stack


def pad_heads(maps: Sequence[Tensor]) -> list[Tensor]:
    """Pad maps (H, Tq, Tk) with heads of NaN to the largest number of heads."""
    heads = max(map(len, maps))
    return [F.pad(layer, (0, 0, 0, 0, 0, heads - len(layer)), value=torch.nan) for layer in maps]


def expand_pooled(weights: Tensor, layout: AttentionLayout | None, lengths: Sequence[int], row: int = 0) -> Tensor:
    """Expand a map of pooled tokens to all tokens, (H, Tq, Tk): each token of a pooled query has its weights, and the
    weight of a pooled key is divided among its tokens, so that sums of rows stay. A pooled token has the position of
    its first token.

    >>> layout = AttentionLayout(2, 2, torch.tensor([0, 1]), torch.tensor([0, 1]))
    >>> expand_pooled(torch.tensor([[[0.25, 0.75], [0.625, 0.375]]]), layout, (3, 4)).tolist()
    [[[0.25, 0.25, 0.25, 0.25], [0.625, 0.125, 0.125, 0.125], [0.625, 0.125, 0.125, 0.125]]]
    """
    owners = []  # of each token, the number of its pooled token
    for pos, length in zip((layout.query_pos, layout.key_pos) if layout else (None, None), lengths, strict=True):
        if pos is None:
            raise UserError("a layer has an attention map of fewer tokens without their positions; inspect another run")
        first = (pos if pos.dim() == 1 else pos[row % len(pos)]).contiguous()
        owners.append(torch.searchsorted(first, torch.arange(length, device=first.device), right=True) - 1)
    queries, keys = owners
    return (weights / keys.bincount(minlength=weights.shape[-1]))[:, queries][..., keys]


@contextmanager
def record(wanted: Callable[[LayerPath], bool] | None = None) -> Iterator[AttentionRecord]:
    """Record the attention of every model that is called inside the block: of all paths, or of those `wanted`.

    >>> from headwise import build
    >>> model = build("transformer-tiny", vocab=20).eval()
    >>> ids = torch.tensor([[5, 6, 7, 2]])
    >>> with record() as maps:
    ...     _ = model(ids, ids)
    >>> [(path, tuple(w.shape)) for path, w in maps.select("decoder", 0).items()]
    [(('decoder', 0, 0), (1, 4, 4, 4)), (('decoder', 0, 1), (1, 4, 4, 4))]
    """
    maps = AttentionRecord(RECORDER.get(), wanted)
    token = RECORDER.set(maps)
    try:
        yield maps
    finally:
        RECORDER.reset(token)


class Collector(SideOutputs):
    """Side outputs by name and path, in the order in which they were added: those of `names`, or all. They are
    forwarded to the collector that was active before."""

    def __init__(self, *names: str, onward: SideOutputs = NO_SIDE):
        self.names, self.onward = frozenset(names), onward
        self.values: dict[str, dict[LayerPath, list[Any]]] = {}

    def add(self, name: str, path: LayerPath, value: Any) -> None:
        if not self.names or name in self.names:
            self.values.setdefault(name, {}).setdefault(path, []).append(value)
        self.onward.add(name, path, value)

    def wants(self, name: str) -> bool:
        return not self.names or name in self.names or self.onward.wants(name)

    def list_values(self, name: str) -> list[Any]:
        """The values of a name, from all paths."""
        return [value for values in self.values.get(name, {}).values() for value in values]


@contextmanager
def collect(*names: str) -> Iterator[Collector]:
    """Collect the side outputs of every model that is called inside the block.

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
