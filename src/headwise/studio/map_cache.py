"""What was looked at lately: maps stay on the server, and pages ask for the layer that they show."""

from __future__ import annotations

from collections import OrderedDict
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.inference.maps import Maps
from headwise.inspect.svg import visible
from headwise.studio.binary_response import Pack
from headwise.studio.texts import fitting, reads

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel

Seen = TypeVar("Seen")
KEPT = 8  # looks
MOST_BYTES = 2**30  # of all that are kept, but for the last
SMALL = 24  # rows and columns of a thumbnail at most


class Looks(Generic[Seen]):
    """The last few looks, by a name that cannot be guessed."""

    def __init__(self, kept: int = KEPT):
        self.kept, self.lock = kept, Lock()
        self.maps: OrderedDict[str, Seen] = OrderedDict()
        self.sizes: dict[str, int] = {}

    def keep(self, maps: Seen, size: int = 0) -> str:
        """`size`: bytes."""
        name = token_hex(8)
        with self.lock:
            self.maps[name], self.sizes[name] = maps, size
            while len(self.maps) > self.kept or (len(self.maps) > 1 and sum(self.sizes.values()) > MOST_BYTES):
                self.sizes.pop(self.maps.popitem(last=False)[0])
        return name

    def __getitem__(self, name: str) -> Seen:
        with self.lock:
            if name not in self.maps:
                raise UserError("this look is forgotten by now; look again")
            return self.maps[name]


def collect_maps(loaded: TrainedModel, text: str, target: str) -> Maps:
    """The maps of a text that is neither empty nor too long."""
    if not text.strip():
        raise UserError("there is no text to look at; give one")
    fitting(reads(loaded), text)
    fitting(loaded.tokenisers.target, target, "output")
    return loaded.inspect(text, target)


def size_of(maps: Maps) -> int:
    """Bytes."""
    return sum(each.nbytes for each in (*maps.weights.values(), *maps.exact.values()))


def overview(name: str, maps: Maps, about: dict[str, Any], kind: str = "", number: int = -1) -> bytes:
    """Tokens, shapes, a thumbnail of every head, and all heads of the layer that is shown first: of the kind that is
    wanted or else the main one, the last where no other is named."""
    pack = Pack()
    first = kind if kind in maps.weights else maps.main
    shown = min(number, len(maps.weights[first]) - 1) % len(maps.weights[first])
    kinds = [
        {
            "name": kind,
            "rows": [visible(token) for token in maps.rows(kind)],
            "columns": [visible(token) for token in maps.columns(kind)],
            "layers": weights.shape[0],
            "heads": weights.shape[1],
            "there": (~np.isnan(weights).all(axis=(2, 3))).tolist(),
            "exact": kind in maps.exact,
            "thumbnails": pack.add(thumbnails(weights)),
        }
        for kind, weights in maps.weights.items()
    ]
    layer = {"kind": first, "layer": shown, "weights": pack.add(maps.weights[first][shown])}
    return pack.bytes({"look": name, "main": maps.main, "kinds": kinds, "shown": layer, **about})


def layer(maps: Maps, kind: str, number: int, exact: bool = False) -> bytes:
    """All heads of one layer."""
    found = (maps.exact if exact else maps.weights).get(kind)
    if found is None or not 0 <= number < len(found):
        raise UserError(f"there is no layer {number + 1} of {kind} attention here")
    pack = Pack()
    return pack.bytes({"kind": kind, "layer": number, "weights": pack.add(found[number])})


def thumbnails(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Maps (layers, heads, T, S) made small: of the cells that fall together the heaviest counts, so that no line of a
    long text is lost."""
    for axis in (2, 3):
        step = -(-weights.shape[axis] // SMALL)
        if step > 1:
            starts = np.arange(0, weights.shape[axis], step)
            weights = np.fmax.reduceat(weights, starts, axis=axis)
    return weights
