"""Maps of pairs of residues side by side: distances, contacts, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.inspect import colour
from headwise.inspect.pictures import MARGIN
from headwise.inspect.svg import Drawing, Picture, Rect, Shape, Text, text_width

SIDE, GAP, BAR = 236.0, 34.0, 46.0  # pixels of a map, between maps, of a colour bar with its ticks
LEFT, TOP = 26.0, 116.0  # room for ticks of residues; above the maps
UNKNOWN = (233, 233, 230)  # where there is no value
STEPS = 40  # of a colour bar


@dataclass(frozen=True, eq=False)
class PairMap:
    """Values of all pairs (L, L) on a colour scale from `low` to `high`; NaN is not known."""

    name: str
    values: NDArray[np.floating]
    low: float
    high: float
    unit: str = ""
    small_is_dark: bool = False
    marks: NDArray[np.bool_] | None = None  # (L, L) pairs to frame

    @property
    def scale(self) -> tuple[str, ...]:
        return colour.WEIGHTS[::-1] if self.small_is_dark else colour.WEIGHTS

    def paint(self) -> colour.Pixels:
        """Colours of all pairs, (L, L, 3)."""
        pixels = colour.paint(np.nan_to_num(self.values), self.low, self.high, self.scale)
        pixels[np.isnan(self.values)] = UNKNOWN
        return pixels


def draw_pair_maps(
    maps: Sequence[PairMap], title: str, note: str = "", columns: int = 2, side: float = SIDE
) -> Drawing:
    """Draw maps in rows of `columns`, each with residue numbers and its colour scale."""
    columns = min(columns, len(maps))
    step, down = LEFT + side + BAR + GAP, side + 62.0
    shapes: list[Shape] = [Text(MARGIN, 36, title, 19, bold=True), Text(MARGIN, 58, note, 12.5, colour.SOFT)]
    for number, each in enumerate(maps):
        row, column = divmod(number, columns)
        shapes += draw_pair_map(each, MARGIN + LEFT + column * step, TOP + row * down, side)
    rows = -(-len(maps) // columns)
    width = max(columns * step, text_width(title, 19), text_width(note, 12.5)) + 2 * MARGIN - GAP
    return Drawing(width, TOP + rows * down - 62 + MARGIN, tuple(shapes), title)


def draw_pair_map(each: PairMap, x: float, y: float, side: float = SIDE) -> list[Shape]:
    """Draw one map at (x, y) with its name above it."""
    length = len(each.values)
    cell = side / length
    marks = [] if each.marks is None else np.argwhere(each.marks).tolist()
    return [
        Text(x, y - 22, each.name, 12.5),
        Picture(x, y, side, side, each.paint()),
        *(Rect(x + j * cell, y + i * cell, cell, cell, stroke=colour.ACCENT, line=1.0) for i, j in marks),
        Rect(x, y, side, side, stroke=colour.FAINT),
        *draw_residue_numbers(length, x, y, cell),
        *draw_scale(each, x + side + 8, y, side / 2),
    ]


def draw_residue_numbers(length: int, x: float, y: float, cell: float) -> list[Shape]:
    """Number residues to the left and above, about five of them."""
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500) if length / size <= 7 or size == 500)
    places = range(step, length + 1, step)
    across = [Text(x + (n - 0.5) * cell, y - 6, str(n), 9, colour.SOFT, "middle") for n in places]
    return [*across, *(Text(x - 4, y + (n - 0.5) * cell + 3, str(n), 9, colour.SOFT, "end") for n in places)]


def draw_scale(each: PairMap, x: float, y: float, high: float) -> list[Shape]:
    """Draw the colour scale of a map, its largest value on top."""
    values = np.linspace(each.high, each.low, STEPS)[:, None]
    pixels = colour.paint(values, each.low, each.high, each.scale)
    ticks = ((0.0, each.high), (0.5, (each.low + each.high) / 2), (1.0, each.low))
    unit = f" {each.unit}" if each.unit else ""
    return [
        Picture(x, y, 9, high, pixels),
        Rect(x, y, 9, high, stroke=colour.FAINT),
        *(Text(x + 13, y + at * high + 3, f"{value:.3g}{unit}", 9, colour.SOFT) for at, value in ticks),
    ]
