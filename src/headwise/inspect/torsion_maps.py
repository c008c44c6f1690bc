"""AlphaFold 1's distributions of the torsions φ and ψ along a chain, with the true angles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwise.inspect import colour
from headwise.inspect.pictures import MARGIN
from headwise.inspect.svg import Drawing, Picture, Rect, Shape, Text

Values = NDArray[np.floating]
HEIGHT, WIDTH, GAP = 150.0, 700.0, 26.0


def draw_torsions(torsions: Values, true: Values | None, title: str) -> Drawing:
    """Draw the marginal distributions of φ and ψ, (L, n, n), one column for each residue, and the true angles (L, 2) in
    degrees as frames."""
    length, bins = torsions.shape[:2]
    left, top, cell = MARGIN + 48, 92.0, WIDTH / length
    note = "darker: more probable, each residue scaled to its largest" + ("" if true is None else "; framed: true")
    shapes: list[Shape] = [Text(MARGIN, 36, title, 19, bold=True), Text(MARGIN, 58, note, 12.5, colour.SOFT)]
    for number, (name, axis) in enumerate((("φ", 2), ("ψ", 1))):
        y = top + number * (HEIGHT + GAP)
        marginal = torsions.sum(axis)  # (L, n)
        shares = marginal / marginal.max(axis=1, keepdims=True)
        shapes.append(Picture(left, y, WIDTH, HEIGHT, colour.paint(shares.T[::-1])))  # 180° on top
        shapes.append(Rect(left, y, WIDTH, HEIGHT, stroke=colour.FAINT))
        shapes.append(Text(MARGIN, y + HEIGHT / 2 + 4, name, 14))
        shapes += [
            Text(left - 6, y + at * HEIGHT + 3, f"{180 - 360 * at:g}°", 9, colour.SOFT, "end") for at in (0, 0.5, 1)
        ]
        if true is not None:
            shapes += _frame_true(true[:, number], bins, (left, y), cell)
    bottom = top + 2 * HEIGHT + GAP
    numbers = range(10, length + 1, 10)
    shapes += [Text(left + (n - 0.5) * cell, bottom + 14, str(n), 9, colour.SOFT, "middle") for n in numbers]
    return Drawing(left + WIDTH + MARGIN, bottom + 18 + MARGIN / 2, tuple(shapes), title)


def _frame_true(angles: Values, bins: int, corner: tuple[float, float], cell: float) -> list[Shape]:
    high = HEIGHT / bins
    rows = [
        (place, int((180 - angle) / 360 * bins) % bins) for place, angle in enumerate(angles) if not np.isnan(angle)
    ]
    return [
        Rect(corner[0] + place * cell, corner[1] + row * high, cell, high, stroke=colour.ACCENT) for place, row in rows
    ]
