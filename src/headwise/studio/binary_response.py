"""Binary responses for attention maps: a JSON header, then arrays of 16-bit integers.

    4 bytes  length of the header, little-endian
    header   JSON; each array in it is {"at": offset in the rest, "shape": [...], "low": x, "high": y}
    rest     16-bit integers u, little-endian: a value is low + u / 65535 * (high - low)

A map of 64 tokens takes 8 kB and needs no parsing; as JSON it would take about 30 kB.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_INTEGER = 65_535


class BinaryResponse:
    """Collects arrays. `add` returns the entry that describes an array in the header.

    >>> response = BinaryResponse()
    >>> response.add(np.array([[0.0, 0.5, 1.0]]))
    {'at': 0, 'shape': [1, 3], 'low': 0.0, 'high': 1.0}
    >>> len(response.to_bytes({}))
    12
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.length = 0

    def add(self, values: NDArray[np.floating]) -> dict[str, Any]:
        """Add an array; NaN (a head that does not exist) becomes the lowest value."""
        low = min(float(np.nanmin(values, initial=0.0)), 0.0)
        high = max(float(np.nanmax(values, initial=0.0)), 1.0)
        scaled = (np.nan_to_num(values.astype(np.float64), nan=low) - low) * (MAX_INTEGER / (high - low))
        part = np.rint(scaled).astype("<u2").tobytes()
        where = {"at": self.length, "shape": list(values.shape), "low": low, "high": high}
        self.parts.append(part)
        self.length += len(part)
        return where

    def to_bytes(self, header: dict[str, Any]) -> bytes:
        encoded = json.dumps(header, separators=(",", ":")).encode()
        encoded += b" " * (-len(encoded) % 2)  # align the integers
        return b"".join([len(encoded).to_bytes(4, "little"), encoded, *self.parts])
