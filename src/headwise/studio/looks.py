"""What was looked at lately: maps stay on the server, and pages ask for the layer that they show."""

from __future__ import annotations

from collections import OrderedDict
from secrets import token_hex
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.inspect.maps import Maps
from headwise.inspect.svg import visible
from headwise.studio.pack import Pack

Seen = TypeVar("Seen")
KEPT = 8  # looks
SMALL = 24  # rows and columns of a thumbnail at most


class Looks(Generic[Seen]):
    """The last few looks, by a name that cannot be guessed."""

    def __init__(self, kept: int = KEPT):
        self.kept, self.lock = kept, Lock()
        self.maps: OrderedDict[str, Seen] = OrderedDict()

    def keep(self, maps: Seen) -> str:
        name = token_hex(8)
        with self.lock:
            self.maps[name] = maps
            while len(self.maps) > self.kept:
                self.maps.popitem(last=False)
        return name

    def __getitem__(self, name: str) -> Seen:
        with self.lock:
            if name not in self.maps:
                raise UserError("this look is forgotten by now; look again")
            return self.maps[name]


def overview(name: str, maps: Maps, about: dict[str, Any]) -> bytes:
    """Tokens, shapes, and a thumbnail of every head."""
    pack = Pack()
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
    return pack.bytes({"look": name, "main": maps.main, "kinds": kinds, **about})


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
