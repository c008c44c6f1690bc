"""Ablation: hide tokens from attention, and set the outputs of heads and parts to zero, while a model runs.

An intervention is a recorder, so it reaches every attention that can be recorded and costs nothing when there is none.
It forwards what it changed: maps recorded inside or outside of it are those that were used.

Letters: N rows of a batch or 1, S keys, H heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs, AttentionLayout, ScoreMod
from headwise.blocks.record import get_attention_kind
from headwise.blocks.stream import RECORDER, ForwardingRecorder, LayerPath, Recorder
from headwise.errors import UserError

Masks = Mapping[LayerPath, Tensor]


class HiddenTokens(ScoreMod):
    """Mask chosen keys for every query. Keys beyond the mask, which were generated later, stay visible."""

    def __init__(self, hidden: Tensor):
        super().__init__()
        self.hidden = hidden  # (N, S) True = hidden

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        extra = max(0, layout.keys - self.hidden.shape[1])
        return F.pad(self.hidden, (0, extra))[:, None, None, : layout.keys]  # (N, S) -> (N, 1, 1, Tk)


class Intervention(ForwardingRecorder):
    """Ablation of tokens, heads and parts: masks of tokens by stack (`hide`), of `heads` and `parts` by layer path;
    True = hidden or ablated."""

    def __init__(self, hide: Mapping[str, Tensor], heads: Masks, parts: Masks, onward: Recorder):
        super().__init__(onward)
        self.hidden = {stack: HiddenTokens(mask) for stack, mask in hide.items()}
        self.ablated_heads, self.ablated_parts = heads, parts

    def _find_mask(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> ScoreMod | None:
        kind = get_attention_kind(path, inputs)
        return self.hidden.get("encoder" if kind == "cross" else kind)

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        if isinstance(inputs, ApproximateMap) and self._find_mask(path, inputs) is not None:
            raise UserError(
                "hide: this model mixes tokens without attention scores, so none can be hidden; ablate heads instead"
            )
        super().observe(path, inputs)

    def edit_inputs(self, path: LayerPath, inputs: AttentionInputs) -> AttentionInputs:
        inputs, mod = super().edit_inputs(path, inputs), self._find_mask(path, inputs)
        return inputs if mod is None else replace(inputs, score_mods=(*inputs.score_mods, mod))

    def edit_heads(self, path: LayerPath, mixed: Tensor) -> Tensor:
        mixed, ablated = super().edit_heads(path, mixed), self.ablated_heads.get(path)
        return mixed if ablated is None else mixed.masked_fill(ablated[..., None, None], 0)  # (N, H) -> (N, H, 1, 1)

    def edit_output(self, path: LayerPath, x: Tensor) -> Tensor:
        x, ablated = super().edit_output(path, x), self.ablated_parts.get(path)
        return x if ablated is None else x.masked_fill(ablated[:, None, None], 0)  # (N,) -> (N, 1, 1)


@contextmanager
def intervene(
    hide: Mapping[str, Tensor] | None = None, heads: Masks | None = None, parts: Masks | None = None
) -> Iterator[Intervention]:
    """Ablate parts of every model that is called inside the block. Masks have a row for each row of the batch, or one
    for all: `hide` tokens (N, S) of a stack, `heads` (N, H) and `parts` (N,) of a layer path.

    >>> import torch
    >>> from headwise import build, record
    >>> model, ids = build("transformer-tiny", vocab=20).eval(), torch.tensor([[5, 6, 7, 2]])
    >>> with record() as maps, intervene(hide={"encoder": torch.tensor([[False, True, False, False]])}):
    ...     _ = model(ids, ids)
    >>> bool((maps.stack_by_kind()["cross"][..., 1] == 0).all())
    True
    """
    intervention = Intervention(hide or {}, heads or {}, parts or {}, RECORDER.get())
    token = RECORDER.set(intervention)
    try:
        yield intervention
    finally:
        RECORDER.reset(token)


class Survey(ForwardingRecorder):
    """What can be ablated in a model: attentions by kind and layer path, with their numbers of heads and keys."""

    def __init__(self, onward: Recorder) -> None:
        super().__init__(onward)
        self.kinds: dict[LayerPath, str] = {}
        self.keys: dict[LayerPath, int] = {}  # of attentions whose keys can be masked
        self.head_counts: dict[LayerPath, int] = {}  # heads that can be ablated

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        self.kinds[path] = get_attention_kind(path, inputs)
        if isinstance(inputs, AttentionInputs):
            self.keys[path] = inputs.layout.keys
        super().observe(path, inputs)

    def edit_heads(self, path: LayerPath, mixed: Tensor) -> Tensor:
        self.head_counts[path] = mixed.shape[1]
        return super().edit_heads(path, mixed)

    def list_paths(self, kind: str) -> list[LayerPath]:
        """Layer paths of one kind of attention, from the lowest layer up."""
        return [path for path, path_kind in self.kinds.items() if path_kind == kind]


@contextmanager
def survey() -> Iterator[Survey]:
    """List the heads and attentions of the models that are called inside the block.

    >>> import torch
    >>> from headwise import build
    >>> model, ids = build("transformer-tiny", vocab=20).eval(), torch.tensor([[5, 6, 7, 2]])
    >>> with survey() as layers:
    ...     _ = model(ids, ids)
    >>> layers.list_paths("cross"), layers.head_counts["decoder", 1, 1]
    ([('decoder', 0, 1), ('decoder', 1, 1)], 4)
    """
    result = Survey(RECORDER.get())
    token = RECORDER.set(result)
    try:
        yield result
    finally:
        RECORDER.reset(token)
