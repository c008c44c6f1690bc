"""Colour scales as arrays: light to dark for weights, two-sided for signed values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Pixels = NDArray[np.uint8]

INK, SOFT, FAINT, PAPER = "#1c2433", "#5b6577", "#d5dae3", "#ffffff"
ACCENT, WARM = "#b4531a", "#c2410c"

# dark enough at the end for white digits, monotone in lightness so that it survives a grey printer
WEIGHTS = ("#f4f7fb", "#c9dcf0", "#7fb2dd", "#3578b9", "#0b3a73")
TINY = 1e-5  # what of a weight is rounding
SIGNED = ("#8c3b0c", "#dd9a66", "#f7f7f5", "#76aad6", "#0b3a73")


def paint(values: ArrayLike, low: float = 0.0, high: float = 1.0, scale: tuple[str, ...] = WEIGHTS) -> Pixels:
    """The colour of every value: (...) -> (..., 3) bytes; values outside the range take the end's colour.

    >>> paint([0.0, 1.0]).tolist()
    [[244, 247, 251], [11, 58, 115]]
    """
    stops = np.array([[int(name[i : i + 2], 16) for i in (1, 3, 5)] for name in scale])  # (stops, 3)
    span = (high - low) or 1.0
    where = np.clip((np.asarray(values, dtype=float) - low) / span, 0, 1) * (len(scale) - 1)
    channels = [np.interp(where, range(len(scale)), stops[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


class Scale(NamedTuple):
    """Colours from nothing to `high`, or both ways from nothing where weights may be negative."""

    high: float = 1.0
    signed: bool = False

    @classmethod
    def over(cls, *maps: ArrayLike) -> Scale:
        """The scale that ends at the largest weight, rounded up to a tenth."""
        every = np.concatenate([np.ravel(each) for each in maps])
        largest = float(np.nanmax(np.abs(every)))
        return cls(max(0.1, math.ceil(largest * 10 - TINY) / 10), bool(np.nanmin(every) < -TINY))

    def paint(self, weights: ArrayLike) -> Pixels:
        low, scale = (-self.high, SIGNED) if self.signed else (0.0, WEIGHTS)
        return paint(weights, low, self.high, scale)


def name(pixel: NDArray[np.uint8]) -> str:
    """A pixel as CSS writes it."""
    return "#" + "".join(f"{int(channel):02x}" for channel in pixel)


def ink_on(pixel: NDArray[np.uint8]) -> str:
    """Black or white, whichever reads better on this colour (by relative luminance)."""
    return INK if pixel @ np.array([0.299, 0.587, 0.114]) > 140 else PAPER
