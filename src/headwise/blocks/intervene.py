"""Changing what goes on inside: tokens that attention may not see, heads and parts that give nothing.

An intervention stands where a recorder stands, so it reaches every attention that can be recorded, and costs nothing
where there is none. It passes on what it changed: recorded inside or outside of it, maps are those that were used.

Letters: N rows of a batch or 1, S keys, H heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs, AttentionLayout, ScoreMod
from headwise.blocks.record import kind_of
from headwise.blocks.stream import RECORDER, ForwardingRecorder, LayerPath, Recorder
from headwise.errors import UserError

Masks = Mapping[LayerPath, Tensor]


class HiddenTokens(ScoreMod):
    """Hide chosen keys from every query. Keys beyond those that the mask knows are seen: they were written later."""

    def __init__(self, hidden: Tensor):
        super().__init__()
        self.hidden = hidden  # (N, S) True = hidden

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        more = max(0, layout.keys - self.hidden.shape[1])
        return F.pad(self.hidden, (0, more))[:, None, None, : layout.keys]  # (N, S) -> (N, 1, 1, Tk)


class Intervention(ForwardingRecorder):
    """Ablation of tokens, heads and parts while a model runs: `hide` has tokens by stack, `edit_heads` and `parts` what
    gives zeros, by place; True is hidden or silent."""

    def __init__(self, hide: Mapping[str, Tensor], heads: Masks, parts: Masks, onward: Recorder):
        super().__init__(onward)
        self.hidden = {stack: HiddenTokens(mask) for stack, mask in hide.items()}
        self.silent_heads, self.silent_parts = heads, parts

    def _hiding(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> ScoreMod | None:
        kind = kind_of(path, inputs)
        return self.hidden.get("encoder" if kind == "cross" else kind)

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        if isinstance(inputs, ApproximateMap) and self._hiding(path, inputs) is not None:
            raise UserError("this model mixes its tokens without looks, so that none can be hidden; silence heads")
        super().observe(path, inputs)

    def edit_inputs(self, path: LayerPath, inputs: AttentionInputs) -> AttentionInputs:
        inputs, mod = super().edit_inputs(path, inputs), self._hiding(path, inputs)
        return inputs if mod is None else replace(inputs, score_mods=(*inputs.score_mods, mod))

    def edit_heads(self, path: LayerPath, mixed: Tensor) -> Tensor:
        mixed, silent = super().edit_heads(path, mixed), self.silent_heads.get(path)
        return mixed if silent is None else mixed.masked_fill(silent[..., None, None], 0)  # (N, H) -> (N, H, 1, 1)

    def edit_output(self, path: LayerPath, x: Tensor) -> Tensor:
        x, silent = super().edit_output(path, x), self.silent_parts.get(path)
        return x if silent is None else x.masked_fill(silent[:, None, None], 0)  # (N,) -> (N, 1, 1)


@contextmanager
def intervene(
    hide: Mapping[str, Tensor] | None = None, heads: Masks | None = None, parts: Masks | None = None
) -> Iterator[Intervention]:
    """Change every model that is called inside the block. Masks have a row for each row of the batch, or one for all:
    `hide` tokens (N, S) of a stack, silence `edit_heads` (N, H) and `parts` (N,) of a place.

    >>> import torch
    >>> from headwise import build, record
    >>> model, ids = build("transformer-tiny", vocab=20).eval(), torch.tensor([[5, 6, 7, 2]])
    >>> with record() as maps, intervene(hide={"encoder": torch.tensor([[False, True, False, False]])}):
    ...     _ = model(ids, ids)
    >>> bool((maps.by_kind()["cross"][..., 1] == 0).all())
    True
    """
    change = Intervention(hide or {}, heads or {}, parts or {}, RECORDER.get())
    token = RECORDER.set(change)
    try:
        yield change
    finally:
        RECORDER.reset(token)


class Survey(ForwardingRecorder):
    """What can be changed in a model: looks by kind and place, with their numbers of heads and keys."""

    def __init__(self, onward: Recorder) -> None:
        super().__init__(onward)
        self.kinds: dict[LayerPath, str] = {}
        self.keys: dict[LayerPath, int] = {}  # of looks that can be changed
        self.head_counts: dict[LayerPath, int] = {}  # heads that can be silenced

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        self.kinds[path] = kind_of(path, inputs)
        if isinstance(inputs, AttentionInputs):
            self.keys[path] = inputs.layout.keys
        super().observe(path, inputs)

    def edit_heads(self, path: LayerPath, mixed: Tensor) -> Tensor:
        self.head_counts[path] = mixed.shape[1]
        return super().edit_heads(path, mixed)

    def list_paths(self, kind: str) -> list[LayerPath]:
        """From the lowest layer up."""
        return [path for path, own in self.kinds.items() if own == kind]


@contextmanager
def survey() -> Iterator[Survey]:
    """Note where the models that are called inside the block have heads and looks.

    >>> import torch
    >>> from headwise import build
    >>> model, ids = build("transformer-tiny", vocab=20).eval(), torch.tensor([[5, 6, 7, 2]])
    >>> with survey() as found:
    ...     _ = model(ids, ids)
    >>> found.list_paths("cross"), found.head_counts["decoder", 1, 1]
    ([('decoder', 0, 1), ('decoder', 1, 1)], 4)
    """
    found = Survey(RECORDER.get())
    token = RECORDER.set(found)
    try:
        yield found
    finally:
        RECORDER.reset(token)
