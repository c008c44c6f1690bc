"""Confusion matrix as a heat map: true labels in rows, predicted labels in columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.inspect import colour
from headwise.inspect.pictures import (
    MARGIN,
    draw_cell_borders,
    draw_colour_bar,
    draw_column_labels,
    draw_row_labels,
    format_label,
)
from headwise.inspect.svg import Drawing, Grid, Rect, Shape, Text, text_width

Counts = NDArray[np.integer]


def draw_confusion_matrix(counts: Counts, labels: Sequence[str], title: str, note: str = "") -> Drawing:
    """Draw a confusion matrix: counts (true, predicted) in cells that are coloured by their share of the row.

    Normalised rows show the errors of rare labels as clearly as those of frequent ones. Correct predictions are framed.
    """
    size = len(labels)
    cell = min(64.0, max(12.0, 760.0 / max(size, 1)))
    letters = min(15.0, cell * 0.4)
    names = [format_label(label) for label in labels]
    longest = max(text_width(name, letters) for name in names)
    upright = letters * min(1, 0.8 * cell / longest)  # one font size for all columns, with room for capitals
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
        *draw_cell_borders(left, top, cell, size, size),
        *draw_row_labels(names, left - 10, top, cell, letters),
        *draw_column_labels(names, left, top - 10, cell, upright if flat else letters, flat),
        *draw_counts(counts, pixels, left, top, cell),
        *frame_diagonal(size, left, top, cell),
        *draw_colour_bar(end + 26, top, min(size * cell, 260), 1.0),
        Text(end + 26, top - 12, "share of row", 11, colour.SOFT),
    ]
    slant = 0 if flat else 0.6 * text_width(names[-1], letters)
    wide = max(end + max(110, slant), *(MARGIN * 2 + text_width(*line) for line in ((title, 19), (note, 12.5))))
    return Drawing(wide, top + max(size * cell, 90) + MARGIN, tuple(shapes), title)


def draw_counts(counts: Counts, pixels: colour.Pixels, x: float, y: float, cell: float) -> list[Shape]:
    """Write the counts other than 0 into their cells, unless the cells are too small."""
    shapes: list[Shape] = []
    for i, j in zip(*counts.nonzero(), strict=True):
        text = str(counts[i, j])
        size = min(0.34 * cell, 14.0, 0.86 * cell / text_width(text, 1.0))
        if size >= 5:
            ink = colour.pick_text_colour(pixels[i, j])
            shapes.append(Text(x + (j + 0.5) * cell, y + (i + 0.5) * cell + 0.36 * size, text, size, ink, "middle"))
    return shapes


def frame_diagonal(size: int, x: float, y: float, cell: float) -> list[Shape]:
    """Frame the cells of correct predictions."""
    places = [(x + i * cell + 1, y + i * cell + 1) for i in range(size)]
    return [Rect(*place, cell - 2, cell - 2, stroke=colour.ACCENT, line=1.2) for place in places]
