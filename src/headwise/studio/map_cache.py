"""A cache of attention maps: they stay on the server, and a page requests the layer it shows."""

from __future__ import annotations

from collections import OrderedDict
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.inference.maps import Maps
from headwise.inspect.svg import replace_controls
from headwise.studio.binary_response import BinaryResponse
from headwise.studio.texts import encode_checked, get_input_tokeniser

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel

Value = TypeVar("Value")
MAX_ENTRIES = 8
MAX_BYTES = 2**30  # of all entries; the newest stays even if it is larger
GONE = "these attention maps are no longer in the cache; press Look again"
THUMBNAIL_SIZE = 24  # rows and columns at most


class MapCache(Generic[Value]):
    """The most recent attention maps, each under a random name."""

    def __init__(self, max_entries: int = MAX_ENTRIES, gone: str = GONE):
        self.max_entries, self.gone, self.lock = max_entries, gone, Lock()
        self.values: OrderedDict[str, Value] = OrderedDict()
        self.sizes: dict[str, int] = {}

    def add(self, value: Value, size: int = 0) -> str:
        """Store a value of `size` bytes and return its name; the oldest entries are dropped."""
        name = token_hex(8)
        with self.lock:
            self.values[name], self.sizes[name] = value, size
            while len(self.values) > self.max_entries or (
                len(self.values) > 1 and sum(self.sizes.values()) > MAX_BYTES
            ):
                self.sizes.pop(self.values.popitem(last=False)[0])
        return name

    def __getitem__(self, name: str) -> Value:
        with self.lock:
            if name not in self.values:
                raise UserError(self.gone)
            return self.values[name]


def collect_maps(trained: TrainedModel, text: str, target: str) -> Maps:
    """The attention maps of a text, which must be neither empty nor too long."""
    if not text.strip():
        raise UserError("there is no text; enter one")
    encode_checked(get_input_tokeniser(trained), text)
    encode_checked(trained.tokenisers.target, target, "output")
    return trained.inspect(text, target)


def count_bytes(maps: Maps) -> int:
    """The size of all maps in bytes."""
    return sum(weights.nbytes for weights in (*maps.weights.values(), *maps.exact.values()))


def pack_overview(name: str, maps: Maps, details: dict[str, Any], kind: str = "", number: int = -1) -> bytes:
    """Tokens, shapes, a thumbnail of every head, and all heads of the layer that is shown first. By default that is the
    last layer of the main kind of attention."""
    response = BinaryResponse()
    shown_kind = kind if kind in maps.weights else maps.main
    shown_layer = min(number, len(maps.weights[shown_kind]) - 1) % len(maps.weights[shown_kind])
    kinds = [
        {
            "name": kind,
            "rows": [replace_controls(token) for token in maps.rows(kind)],
            "columns": [replace_controls(token) for token in maps.columns(kind)],
            "layers": weights.shape[0],
            "heads": weights.shape[1],
            "present": (~np.isnan(weights).all(axis=(2, 3))).tolist(),
            "exact": kind in maps.exact,
            "thumbnails": response.add(make_thumbnails(weights)),
        }
        for kind, weights in maps.weights.items()
    ]
    layer = {"kind": shown_kind, "layer": shown_layer, "weights": response.add(maps.weights[shown_kind][shown_layer])}
    return response.to_bytes({"name": name, "main": maps.main, "kinds": kinds, "shown": layer, **details})


def pack_layer(maps: Maps, kind: str, number: int, exact: bool = False) -> bytes:
    """All heads of one layer."""
    layers = (maps.exact if exact else maps.weights).get(kind)
    if layers is None or not 0 <= number < len(layers):
        raise UserError(f"there is no layer {number + 1} of {kind} attention here")
    response = BinaryResponse()
    return response.to_bytes({"kind": kind, "layer": number, "weights": response.add(layers[number])})


def make_thumbnails(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Downsample maps (layers, heads, T, S) by max pooling, so that no line of a long text is lost."""
    for axis in (2, 3):
        step = -(-weights.shape[axis] // THUMBNAIL_SIZE)
        if step > 1:
            starts = np.arange(0, weights.shape[axis], step)
            weights = np.fmax.reduceat(weights, starts, axis=axis)
    return weights
