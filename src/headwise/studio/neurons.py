"""Queries and keys of a real head, element by element (after the neuron view of BertViz, Vig 2019).

Letters: B rows, H heads, D head_width, Tq queries, Tk keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs
from headwise.blocks.record import kind_of
from headwise.blocks.stream import RECORDER, LayerPath, Recorder
from headwise.errors import UserError
from headwise.inference.maps import Maps
from headwise.inspect.svg import visible
from headwise.studio.binary_response import Pack
from headwise.studio.map_cache import collect_maps

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel


class Keeper(Recorder):
    """Keeps the last look at each place, in the order in which they came."""

    def __init__(self) -> None:
        self.looks: dict[LayerPath, AttentionInputs | ApproximateMap] = {}

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        self.looks.pop(path, None)
        self.looks[path] = inputs

    def of(self, kind: str) -> list[AttentionInputs | ApproximateMap]:
        """Those of one kind of attention, a layer each."""
        return [inputs for path, inputs in self.looks.items() if kind_of(path, inputs) == kind]


@dataclass(frozen=True, eq=False)
class Neurons:
    """One text through a model: its tokens and maps, and all queries and keys behind them."""

    maps: Maps
    looks: dict[str, list[AttentionInputs | ApproximateMap]]

    def to_dict(self) -> dict[str, Any]:
        kinds = [
            {
                "name": kind,
                "rows": [visible(token) for token in self.maps.rows(kind)],
                "columns": [visible(token) for token in self.maps.columns(kind)],
                "heads": [self.maps.heads(kind, layer) for layer in range(len(looks))],
            }
            for kind, looks in self.looks.items()
        ]
        return {"main": self.maps.main, "kinds": kinds}

    @torch.inference_mode()
    def row(self, kind: str, layer: int, head: int, query: int, key: int) -> bytes:
        """One query at all keys; the chosen key's numbers in full."""
        inputs, exact = self._look(kind, layer)
        asked, keys = inputs.score.project_query(inputs.q), inputs.k
        _check(head=(head, asked.shape[1]), query=(query, asked.shape[2]), key=(key, keys.shape[2]))
        maps = self.maps.exact if exact and kind in self.maps.exact else self.maps.weights  # no others: they are equal
        weights = maps[kind][layer, head, query]
        one, all_keys = asked[0, head, query], keys[0, head]  # (D,) and (Tk, D)
        hidden = inputs.mask()
        pack = Pack()
        return pack.bytes(
            {
                "q": one.tolist(),
                "k": all_keys[key].tolist(),
                "dots": (all_keys @ one).tolist(),
                "scale": inputs.scale,
                "added": added(inputs)[0, head, query].tolist(),
                "hidden": [] if hidden is None else hidden.expand(*asked.shape[:3], -1)[0, head, query].tolist(),
                "weights": weights.tolist(),
                "score_mods": names(inputs),
                "exact": exact,
                "keys": pack.add(all_keys.float().cpu().numpy()),
            }
        )

    def _look(self, kind: str, layer: int) -> tuple[AttentionInputs, bool]:
        """A layer's look, and whether it is one that the model only approximates."""
        looks = self.looks.get(kind, [])
        if not 0 <= layer < len(looks):
            raise UserError(f"there is no layer {layer + 1} of {kind} attention here")
        found, exact = looks[layer], False
        if isinstance(found, ApproximateMap):
            if found.exact is None:
                raise UserError("this layer mixes without queries and keys; choose another layer or run")
            found, exact = found.exact(), True
        if not found.score.fused:
            name = type(found.score).__name__.lower()
            raise UserError(f"the score of this layer is {name}, no product of q and k element by element")
        return found, exact


def added(inputs: AttentionInputs) -> Tensor:
    """What terms add to the scaled products, masks aside: (B, H, Tq, Tk)."""
    scaled = inputs.score.match(inputs.score.project_query(inputs.q) * inputs.scale, inputs.k)
    edited = scaled
    for mod in inputs.mods_with("edit_scores"):
        edited = mod.edit_scores(edited, inputs)
    bias = inputs.bias()
    return edited - scaled if bias is None else edited - scaled + bias


def names(inputs: AttentionInputs) -> dict[str, list[str]]:
    """Which terms act here, by what they touch."""
    found = {hook: inputs.mods_with(hook) for hook in ("rotate", "bias", "edit_scores", "add_values", "edit_weights")}
    return {
        hook: [type(mod).__name__ for mod in score_mods]
        for hook, score_mods in {**found, "mask": inputs.masking_mods()}.items()
    }


def neurons(loaded: TrainedModel, text: str, target: str) -> Neurons:
    """Send a text through a model and keep what its heads compare."""
    keeper = Keeper()
    token = RECORDER.set(keeper)
    try:
        maps = collect_maps(loaded, text, target)
    finally:
        RECORDER.reset(token)
    return Neurons(maps, {kind: keeper.of(kind) for kind in maps.weights})


def _check(**given: tuple[int, int]) -> None:
    for name, (number, count) in given.items():
        if not 0 <= number < count:
            raise UserError(f"{name}: there are {count} here, and no number {number + 1}; choose another")
