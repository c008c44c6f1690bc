"""Colour maps: sequential for weights, diverging for signed values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Pixels = NDArray[np.uint8]

INK, SOFT, FAINT, PAPER = "#1c2433", "#5b6577", "#d5dae3", "#ffffff"
ACCENT, WARM = "#b4531a", "#c2410c"

# dark enough at the end for white digits, monotone in lightness for grey printing
WEIGHTS = ("#f4f7fb", "#c9dcf0", "#7fb2dd", "#3578b9", "#0b3a73")
EPSILON = 1e-5  # weights below this are rounding errors
SIGNED = ("#8c3b0c", "#dd9a66", "#f7f7f5", "#76aad6", "#0b3a73")


def paint(values: ArrayLike, low: float = 0.0, high: float = 1.0, scale: tuple[str, ...] = WEIGHTS) -> Pixels:
    """Map values to colours: (...) -> (..., 3) bytes; values outside the range are clipped.

    >>> paint([0.0, 1.0]).tolist()
    [[244, 247, 251], [11, 58, 115]]
    """
    stops = np.array([[int(name[i : i + 2], 16) for i in (1, 3, 5)] for name in scale])  # (stops, 3)
    span = (high - low) or 1.0
    positions = np.clip((np.asarray(values, dtype=float) - low) / span, 0, 1) * (len(scale) - 1)
    channels = [np.interp(positions, range(len(scale)), stops[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


class Scale(NamedTuple):
    """Colour scale from 0 to `high`, or from -`high` to `high` if weights are signed."""

    high: float = 1.0
    signed: bool = False

    @classmethod
    def fit(cls, *maps: ArrayLike) -> Scale:
        """Fit the scale to the largest weight, rounded up to a tenth."""
        weights = np.concatenate([np.ravel(weights) for weights in maps])
        largest = float(np.nanmax(np.abs(weights)))
        return cls(max(0.1, math.ceil(largest * 10 - EPSILON) / 10), bool(np.nanmin(weights) < -EPSILON))

    def paint(self, weights: ArrayLike) -> Pixels:
        low, scale = (-self.high, SIGNED) if self.signed else (0.0, WEIGHTS)
        return paint(weights, low, self.high, scale)


def to_hex(pixel: NDArray[np.uint8]) -> str:
    """Format a pixel as a CSS colour."""
    return "#" + "".join(f"{int(channel):02x}" for channel in pixel)


def pick_text_colour(pixel: NDArray[np.uint8]) -> str:
    """Pick the dark or the light text colour, by the luminance of the background."""
    return INK if pixel @ np.array([0.299, 0.587, 0.114]) > 140 else PAPER


# pLDDT in the bands of the AlphaFold database: very high, confident, low, very low
CONFIDENCE_BANDS = ((90, "#0053d6"), (70, "#65cbf3"), (50, "#ffdb13"), (0, "#ff7d45"))


def pick_confidence_colour(confidence: float) -> str:
    """The colour of a residue's confidence, 0 to 100.

    >>> pick_confidence_colour(90.0), pick_confidence_colour(12.5)
    ('#0053d6', '#ff7d45')
    """
    return next((name for least, name in CONFIDENCE_BANDS if confidence >= least), CONFIDENCE_BANDS[-1][1])
