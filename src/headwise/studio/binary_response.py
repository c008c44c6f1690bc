"""Attention maps as bytes: a header in JSON, then weights in 16 bits.

    4 bytes  length of the header, little-endian
    header   JSON; each array in it is {"at": offset in the rest, "shape": [...], "low": x, "high": y}
    rest     16-bit integers u, little-endian: a value is low + u / 65535 * (high - low)

A map of 64 tokens takes 8 kB and no parsing; as JSON it would take thirty.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

STEPS = 65_535


class Pack:
    """Collects arrays; what it answers for each goes into the header.

    >>> pack = Pack()
    >>> pack.add(np.array([[0.0, 0.5, 1.0]]))
    {'at': 0, 'shape': [1, 3], 'low': 0.0, 'high': 1.0}
    >>> len(pack.bytes({}))
    12
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.length = 0

    def add(self, values: NDArray[np.floating]) -> dict[str, Any]:
        """One array; what is not there (NaN) becomes the lowest value."""
        low = min(float(np.nanmin(values, initial=0.0)), 0.0)
        high = max(float(np.nanmax(values, initial=0.0)), 1.0)
        scaled = (np.nan_to_num(values.astype(np.float64), nan=low) - low) * (STEPS / (high - low))
        part = np.rint(scaled).astype("<u2").tobytes()
        where = {"at": self.length, "shape": list(values.shape), "low": low, "high": high}
        self.parts.append(part)
        self.length += len(part)
        return where

    def bytes(self, header: dict[str, Any]) -> bytes:
        told = json.dumps(header, separators=(",", ":")).encode()
        told += b" " * (-len(told) % 2)  # so that the integers are aligned
        return b"".join([len(told).to_bytes(4, "little"), told, *self.parts])
