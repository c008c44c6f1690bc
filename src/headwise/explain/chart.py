"""Line charts with a logarithmic y axis, as shapes: for stories and for stand-alone pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwise.inspect import colour
from headwise.inspect.svg import Drawing, Path, Rect, Shape, Text, text_width

LABEL_SIZE, LABEL_GAP = 12.0, 15.0  # size of labels, least distance between two of them
# Dark enough to be read as text, apart in lightness as well as in hue.
COLOURS = ("#0b3a73", "#c2410c", "#2f7d4f", "#7b3fa0", "#b0124f", "#5b6577")


@dataclass(frozen=True)
class Line:
    """A named curve; values that are not positive and finite are not drawn."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = COLOURS[0]
    width: float = 2.0


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis, labelled at their right ends; values outside `floor` to `ceiling` are not drawn."""

    name: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    floor: float = 0.0
    ceiling: float = math.inf
    plot_width: float = 560.0
    plot_height: float = 340.0

    @property
    def width(self) -> float:
        return 56 + self.plot_width + 12 + max(text_width(line.name, LABEL_SIZE) for line in self.lines)

    @property
    def height(self) -> float:
        return 30 + self.plot_height + 44

    def draw_at(self, left: float, top: float) -> list[Shape]:
        """The shapes of the chart with this upper left corner."""
        points = [[(x, y) for x, y in zip(line.x, line.y, strict=True) if self._in_range(y)] for line in self.lines]
        all_points = [point for line in points for point in line]
        bottom_power, top_power = _round_to_decades([y for _, y in all_points])
        first, last = min(x for x, _ in all_points), max(x for x, _ in all_points)
        x0, y0 = left + 56, top + 30

        def to_pixel(x: float, y: float) -> tuple[float, float]:
            share = math.log(x / first) / math.log(last / first) if self.log_x else (x - first) / (last - first)
            return x0 + share * self.plot_width, y0 + (top_power - math.log10(y)) / (
                top_power - bottom_power
            ) * self.plot_height

        shapes: list[Shape] = [Text(x0, top + 16, self.y_label, 13, bold=True)]
        for power in _y_ticks(bottom_power, top_power):
            _, y = to_pixel(first, 10.0**power)
            shapes += [Path(((x0, y), (x0 + self.plot_width, y)), colour.FAINT, 0.8)]
            shapes += [Text(x0 - 8, y + 4, _format_power(power), LABEL_SIZE, colour.SOFT, "end")]
        for tick in self._x_ticks(first, last):
            x, _ = to_pixel(tick, 1.0)
            shapes += [Text(x, y0 + self.plot_height + 18, f"{tick:g}", LABEL_SIZE, colour.SOFT, "middle")]
        shapes += [
            Text(x0 + self.plot_width / 2, y0 + self.plot_height + 38, self.x_label, LABEL_SIZE, colour.SOFT, "middle")
        ]
        shapes += [Rect(x0, y0, self.plot_width, self.plot_height, stroke=colour.FAINT)]
        paths = [tuple(to_pixel(*point) for point in line) for line in points]
        shapes += [Path(line, each.colour, each.width) for line, each in zip(paths, self.lines, strict=True)]
        return shapes + self._draw_names([line[-1] for line in paths], x0 + self.plot_width, y0)

    def _draw_names(self, ends: Sequence[tuple[float, float]], edge: float, top: float) -> list[Shape]:
        """The labels of the lines: beside the frame, or inside it if a line ends early, without overlap."""
        reaching_edge = [i for i, (x, _) in enumerate(ends) if x > edge - 40]
        heights = spread_labels([ends[i][1] + 4 for i in reaching_edge], LABEL_GAP, top + self.plot_height + 4)
        places = {i: (edge + 8, y) for i, y in zip(reaching_edge, heights, strict=True)}
        for i in sorted(set(range(len(ends))) - set(reaching_edge), key=lambda i: ends[i]):
            x, y = ends[i][0] + 8, max(ends[i][1] - 3, top + LABEL_GAP)
            while any(_overlaps((x, y), places[j], self.lines[j].name) for j in places if j not in reaching_edge):
                y += LABEL_GAP if y < top + self.plot_height / 2 else -LABEL_GAP
            places[i] = x, y
        return [Text(*places[i], line.name, LABEL_SIZE, line.colour) for i, line in enumerate(self.lines)]

    def _in_range(self, y: float) -> bool:
        return 0 < y < math.inf and self.floor <= y <= self.ceiling

    def _x_ticks(self, first: float, last: float) -> list[float]:
        if self.log_x:
            return sorted({x for line in self.lines for x in line.x})
        step = 10 ** math.floor(math.log10(last - first))
        step = next(size for size in (step / 5, step / 2, step) if (last - first) / size <= 10)
        return [first + i * step for i in range(int((last - first) / step + 1e-9) + 1)]


def draw_chart(chart: Chart, note: str = "") -> Drawing:
    """A chart as a stand-alone picture."""
    head: list[Shape] = [Text(28, 36, chart.name, 19, bold=True), Text(28, 58, note, 12.5, colour.SOFT)]
    wide = max(chart.width, text_width(chart.name, 19), text_width(note, 12.5)) + 56
    return Drawing(wide, 74 + chart.height + 14, (*head, *chart.draw_at(28, 74)), chart.name)


def spread_labels(heights: Sequence[float], gap: float, lowest: float) -> list[float]:
    """Move heights apart until neighbours differ by `gap`: first downwards, then back up from the lowest.

    >>> spread_labels([50.0, 10.0, 52.0], 10.0, 60.0)
    [50.0, 10.0, 60.0]
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = list(heights)
    for above, below in pairwise(order):
        placed[below] = max(placed[below], placed[above] + gap)
    limit = lowest
    for i in reversed(order):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - gap
    return placed


def _overlaps(place: tuple[float, float], other: tuple[float, float], name: str) -> bool:
    """Whether a label here would overlap one that was placed before, to the left."""
    return abs(place[1] - other[1]) < LABEL_GAP and place[0] < other[0] + text_width(name, LABEL_SIZE)


def _round_to_decades(values: Sequence[float]) -> tuple[int, int]:
    """Powers of ten around all values, at least one apart."""
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    return low, max(high, low + 1)


def _y_ticks(low: int, high: int) -> range:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if (high - low) / step <= 8)
    return range(math.ceil(low / step) * step, high + 1, step)


def _format_power(power: int) -> str:
    """
    >>> _format_power(-12), _format_power(0)
    ('10⁻¹²', '1')
    """
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")) if power else "1"
