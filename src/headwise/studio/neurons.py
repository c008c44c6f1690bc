"""Queries and keys of a real head, element by element (after the neuron view of BertViz, Vig 2019).

Letters: B rows, H heads, D head_width, Tq queries, Tk keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs
from headwise.blocks.record import get_attention_kind
from headwise.blocks.stream import RECORDER, LayerPath, Recorder
from headwise.errors import UserError
from headwise.inference.maps import Maps
from headwise.inspect.svg import replace_controls
from headwise.studio.binary_response import BinaryResponse
from headwise.studio.map_cache import collect_maps

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel


class InputsRecorder(Recorder):
    """Records the last attention inputs of each layer, in order of computation."""

    def __init__(self) -> None:
        self.inputs: dict[LayerPath, AttentionInputs | ApproximateMap] = {}

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        self.inputs.pop(path, None)
        self.inputs[path] = inputs

    def get_layers(self, kind: str) -> list[AttentionInputs | ApproximateMap]:
        """The inputs of one kind of attention, one per layer."""
        return [inputs for path, inputs in self.inputs.items() if get_attention_kind(path, inputs) == kind]


@dataclass(frozen=True, eq=False)
class NeuronView:
    """The tokens and attention maps of one text, and the queries and keys of every layer."""

    maps: Maps
    layers: dict[str, list[AttentionInputs | ApproximateMap]]

    def to_dict(self) -> dict[str, Any]:
        kinds = [
            {
                "name": kind,
                "rows": [replace_controls(token) for token in self.maps.rows(kind)],
                "columns": [replace_controls(token) for token in self.maps.columns(kind)],
                "heads": [self.maps.heads(kind, layer) for layer in range(len(layers))],
            }
            for kind, layers in self.layers.items()
        ]
        return {"main": self.maps.main, "kinds": kinds}

    @torch.inference_mode()
    def pack_row(self, kind: str, layer: int, head: int, query: int, key: int) -> bytes:
        """The scores of one query with all keys, and all numbers of the chosen key."""
        inputs, exact = self._get_inputs(kind, layer)
        queries, keys = inputs.score.project_query(inputs.q), inputs.k
        _check_range(head=(head, queries.shape[1]), query=(query, queries.shape[2]), key=(key, keys.shape[2]))
        maps = (
            self.maps.exact if exact and kind in self.maps.exact else self.maps.weights
        )  # without exact maps both are equal
        weights = maps[kind][layer, head, query]
        q, all_keys = queries[0, head, query], keys[0, head]  # (D,) and (Tk, D)
        mask = inputs.build_mask()
        response = BinaryResponse()
        return response.to_bytes(
            {
                "q": q.tolist(),
                "k": all_keys[key].tolist(),
                "dots": (all_keys @ q).tolist(),
                "scale": inputs.scale,
                "added": score_changes(inputs)[0, head, query].tolist(),
                "masked": [] if mask is None else mask.expand(*queries.shape[:3], -1)[0, head, query].tolist(),
                "weights": weights.tolist(),
                "score_mods": list_score_mods(inputs),
                "exact": exact,
                "keys": response.add(all_keys.float().cpu().numpy()),
            }
        )

    def _get_inputs(self, kind: str, layer: int) -> tuple[AttentionInputs, bool]:
        """A layer's attention inputs, and whether they are the exact ones of an approximate attention."""
        layers = self.layers.get(kind, [])
        if not 0 <= layer < len(layers):
            raise UserError(f"there is no layer {layer + 1} of {kind} attention here")
        inputs, is_exact = layers[layer], False
        if isinstance(inputs, ApproximateMap):
            if inputs.exact is None:
                raise UserError("this layer has no queries and keys; choose another layer or run")
            inputs, is_exact = inputs.exact(), True
        if (inputs.q.shape[2], inputs.k.shape[2]) != self.maps.weights[kind].shape[2:]:
            raise UserError("the queries or keys of this layer are pooled tokens; choose another layer or run")
        if not inputs.score.fused:
            name = type(inputs.score).__name__.lower()
            raise UserError(
                f"the score of this layer is {name}, not a dot product of q and k; choose another layer or run"
            )
        return inputs, is_exact


def score_changes(inputs: AttentionInputs) -> Tensor:
    """What score mods add to the scaled products, masks excluded: (B, H, Tq, Tk)."""
    scaled = inputs.score.compute_scores(inputs.score.project_query(inputs.q) * inputs.scale, inputs.k)
    scores = scaled
    for mod in inputs.list_mods("edit_scores"):
        scores = mod.edit_scores(scores, inputs)
    bias = inputs.build_bias()
    return scores - scaled if bias is None else scores - scaled + bias


def list_score_mods(inputs: AttentionInputs) -> dict[str, list[str]]:
    """The names of the score mods by hook."""
    mods = {hook: inputs.list_mods(hook) for hook in ("edit_qk", "bias", "edit_scores", "add_values", "edit_weights")}
    return {
        hook: [type(mod).__name__ for mod in score_mods]
        for hook, score_mods in {**mods, "mask": inputs.list_masking_mods()}.items()
    }


def record_inputs(trained: TrainedModel, text: str, target: str) -> NeuronView:
    """Run a text through a model and record the queries and keys of its heads."""
    recorder = InputsRecorder()
    token = RECORDER.set(recorder)
    try:
        maps = collect_maps(trained, text, target)
    finally:
        RECORDER.reset(token)
    return NeuronView(maps, {kind: recorder.get_layers(kind) for kind in maps.weights})


def _check_range(**indices: tuple[int, int]) -> None:
    for name, (index, count) in indices.items():
        if not 0 <= index < count:
            raise UserError(f"{name}: {index + 1} does not exist; choose one from 1 to {count}")
