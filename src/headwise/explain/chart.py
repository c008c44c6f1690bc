"""Curves on logarithmic scales, as shapes: for stories and for pictures of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwise.inspect import colour
from headwise.inspect.svg import Drawing, Path, Rect, Shape, Text, text_width

SMALL, LINE = 12.0, 15.0  # size of labels, least distance between two of them
# Dark enough to be read as text, apart in lightness as well as in hue.
HUES = ("#0b3a73", "#c2410c", "#2f7d4f", "#7b3fa0", "#b0124f", "#5b6577")


@dataclass(frozen=True)
class Line:
    """A named curve; values that are not positive and finite have no place on the scale and are left out."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    hue: str = HUES[0]
    thick: float = 2.0


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis, each named at its right end; what is below `floor` or above `ceiling` is left out."""

    name: str
    across: str
    up: str
    lines: tuple[Line, ...]
    log_x: bool = False
    floor: float = 0.0
    ceiling: float = math.inf
    wide: float = 560.0
    high: float = 340.0

    @property
    def width(self) -> float:
        return 56 + self.wide + 12 + max(text_width(line.name, SMALL) for line in self.lines)

    @property
    def height(self) -> float:
        return 30 + self.high + 44

    def shapes(self, left: float, top: float) -> list[Shape]:
        """The chart with its upper left corner here."""
        points = [[(x, y) for x, y in zip(line.x, line.y, strict=True) if self._shown(y)] for line in self.lines]
        every = [point for line in points for point in line]
        bottom, summit = _decades([y for _, y in every])
        first, last = min(x for x, _ in every), max(x for x, _ in every)
        x0, y0 = left + 56, top + 30

        def place(x: float, y: float) -> tuple[float, float]:
            along = math.log(x / first) / math.log(last / first) if self.log_x else (x - first) / (last - first)
            return x0 + along * self.wide, y0 + (summit - math.log10(y)) / (summit - bottom) * self.high

        drawn: list[Shape] = [Text(x0, top + 16, self.up, 13, bold=True)]
        for power in _ticks(bottom, summit):
            _, y = place(first, 10.0**power)
            drawn += [Path(((x0, y), (x0 + self.wide, y)), colour.FAINT, 0.8)]
            drawn += [Text(x0 - 8, y + 4, _power(power), SMALL, colour.SOFT, "end")]
        for tick in self._marks(first, last):
            x, _ = place(tick, 1.0)
            drawn += [Text(x, y0 + self.high + 18, f"{tick:g}", SMALL, colour.SOFT, "middle")]
        drawn += [Text(x0 + self.wide / 2, y0 + self.high + 38, self.across, SMALL, colour.SOFT, "middle")]
        drawn += [Rect(x0, y0, self.wide, self.high, stroke=colour.FAINT)]
        placed = [tuple(place(*point) for point in line) for line in points]
        drawn += [Path(line, each.hue, each.thick) for line, each in zip(placed, self.lines, strict=True)]
        return drawn + self._names([line[-1] for line in placed], x0 + self.wide, y0)

    def _names(self, ends: Sequence[tuple[float, float]], edge: float, top: float) -> list[Shape]:
        """The lines' names: beside the frame, or inside it where a line ends early, none over another."""
        through = [i for i, (x, _) in enumerate(ends) if x > edge - 40]
        heights = spread([ends[i][1] + 4 for i in through], LINE, top + self.high + 4)
        places = {i: (edge + 8, y) for i, y in zip(through, heights, strict=True)}
        for i in sorted(set(range(len(ends))) - set(through), key=lambda i: ends[i]):
            x, y = ends[i][0] + 8, max(ends[i][1] - 3, top + LINE)
            while any(_near((x, y), places[j], self.lines[j].name) for j in places if j not in through):
                y += LINE if y < top + self.high / 2 else -LINE
            places[i] = x, y
        return [Text(*places[i], line.name, SMALL, line.hue) for i, line in enumerate(self.lines)]

    def _shown(self, y: float) -> bool:
        return 0 < y < math.inf and self.floor <= y <= self.ceiling

    def _marks(self, first: float, last: float) -> list[float]:
        if self.log_x:
            return sorted({x for line in self.lines for x in line.x})
        step = 10 ** math.floor(math.log10(last - first))
        step = next(size for size in (step / 5, step / 2, step) if (last - first) / size <= 10)
        return [first + i * step for i in range(int((last - first) / step + 1e-9) + 1)]


def drawing(chart: Chart, note: str = "") -> Drawing:
    """A chart as a picture of its own."""
    head: list[Shape] = [Text(28, 36, chart.name, 19, bold=True), Text(28, 58, note, 12.5, colour.SOFT)]
    wide = max(chart.width, text_width(chart.name, 19), text_width(note, 12.5)) + 56
    return Drawing(wide, 74 + chart.height + 14, (*head, *chart.shapes(28, 74)), chart.name)


def spread(heights: Sequence[float], apart: float, lowest: float) -> list[float]:
    """The heights in their order, moved until neighbours are `apart`: first downwards, then back from the lowest.

    >>> spread([50.0, 10.0, 52.0], 10.0, 60.0)
    [50.0, 10.0, 60.0]
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = list(heights)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + apart)
    limit = lowest
    for i in reversed(order):
        moved[i] = min(moved[i], limit)
        limit = moved[i] - apart
    return moved


def _near(place: tuple[float, float], other: tuple[float, float], name: str) -> bool:
    """Whether a text here would run into one that was written there before, to the left."""
    return abs(place[1] - other[1]) < LINE and place[0] < other[0] + text_width(name, SMALL)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Powers of ten around all values, at least one apart."""
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    return low, max(high, low + 1)


def _ticks(low: int, high: int) -> range:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if (high - low) / step <= 8)
    return range(math.ceil(low / step) * step, high + 1, step)


def _power(power: int) -> str:
    """
    >>> _power(-12), _power(0)
    ('10⁻¹²', '1')
    """
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")) if power else "1"
