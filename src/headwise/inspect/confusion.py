"""Which label was taken for which, as a heat map: what is true down the side, what was given along the top."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.inspect import colour
from headwise.inspect.pictures import MARGIN, label, lattice, scale_bar, side_labels, top_labels
from headwise.inspect.svg import Drawing, Grid, Rect, Shape, Text, text_width

Counts = NDArray[np.integer]


def confusion(counts: Counts, labels: Sequence[str], title: str, note: str = "") -> Drawing:
    """Counts (true, given) written into cells that are coloured by their share of the row.

    So a rare label that is always missed is as dark off the diagonal as a frequent one. Right ones are framed.
    """
    size = len(labels)
    cell = min(64.0, max(12.0, 760.0 / max(size, 1)))
    letters = min(15.0, cell * 0.4)
    names = [label(each) for each in labels]
    longest = max(text_width(name, letters) for name in names)
    upright = letters * min(1, 0.8 * cell / longest)  # one size for all columns; capitals need some room
    flat = upright >= min(9, letters)
    left = MARGIN + longest + 14
    top = 100 + (letters if flat else 0.85 * longest)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    pixels = colour.paint(shares)
    end = left + size * cell
    shapes: list[Shape] = [
        Text(MARGIN, 36, title, 19, bold=True),
        Text(MARGIN, 58, note, 12.5, colour.SOFT),
        Grid(left, top, cell, pixels),
        *lattice(left, top, cell, size, size),
        *side_labels(names, left - 10, top, cell, letters),
        *top_labels(names, left, top - 10, cell, upright if flat else letters, flat),
        *written(counts, pixels, left, top, cell),
        *diagonal(size, left, top, cell),
        *scale_bar(end + 26, top, min(size * cell, 260), 1.0),
        Text(end + 26, top - 12, "share of row", 11, colour.SOFT),
    ]
    slant = 0 if flat else 0.6 * text_width(names[-1], letters)
    wide = max(end + max(110, slant), *(MARGIN * 2 + text_width(*line) for line in ((title, 19), (note, 12.5))))
    return Drawing(wide, top + max(size * cell, 90) + MARGIN, tuple(shapes), title)


def written(counts: Counts, pixels: colour.Pixels, x: float, y: float, cell: float) -> list[Shape]:
    """The counts that are not 0, each as large as its cell allows; too small to read, they are left out."""
    shapes: list[Shape] = []
    for i, j in zip(*counts.nonzero(), strict=True):
        text = str(counts[i, j])
        size = min(0.34 * cell, 14.0, 0.86 * cell / text_width(text, 1.0))
        if size >= 5:
            ink = colour.ink_on(pixels[i, j])
            shapes.append(Text(x + (j + 0.5) * cell, y + (i + 0.5) * cell + 0.36 * size, text, size, ink, "middle"))
    return shapes


def diagonal(size: int, x: float, y: float, cell: float) -> list[Shape]:
    """A frame around each cell where what was given is true."""
    places = [(x + i * cell + 1, y + i * cell + 1) for i in range(size)]
    return [Rect(*place, cell - 2, cell - 2, stroke=colour.ACCENT, line=1.2) for place in places]
