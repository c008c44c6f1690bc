"""What mixers cost over length, as tables, as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwise.bench.attention import BASE, PASSES, PEERS, Row
from headwise.explain.chart import HUES, Chart, Line
from headwise.inspect import colour
from headwise.inspect.svg import Drawing, Shape, Text, text_width

BOTH = "forward and backward"
Table = tuple[str, list[str], list[list[str]]]  # title, columns, cells


def tables(rows: Sequence[Row], lengths: Sequence[int]) -> list[Table]:
    """Times of both passes, memory, errors, and the packages of the same name."""
    there = [row for row in rows if any(costs.seconds for costs in row.costs.values())]
    every = [*(time_table(there, lengths, what) for what in PASSES), memory_table(there, lengths)]
    every.append(error_table(there, lengths))
    return [*every, package_table(there, lengths)] if packages(there) else every


def time_table(rows: Sequence[Row], lengths: Sequence[int], what: str) -> Table:
    base = next(row for row in rows if row.name == BASE)
    cells = [
        [
            row.name,
            *_cells(row, what, row.costs[what].times, lengths, lambda seconds: f"{1e3 * seconds:,.0f}"),
            _plain(row.fitted(what)),
            "-" if row is base else _ahead(row.ahead(base, what), lengths),
        ]
        for row in rows
    ]
    return f"milliseconds, {what}", [*_head(lengths), "exponent", "ahead from"], cells


def memory_table(rows: Sequence[Row], lengths: Sequence[int]) -> Table:
    cells = [
        [
            row.name,
            *_cells(row, BOTH, row.costs[BOTH].bytes, lengths, lambda count: f"{count / 1e6:,.0f}"),
            _plain(row.fitted(BOTH, "bytes")),
        ]
        for row in rows
    ]
    return f"peak megabytes, {BOTH}", [*_head(lengths), "exponent"], cells


def error_table(rows: Sequence[Row], lengths: Sequence[int]) -> Table:
    cells = [
        [row.name, *(_error(row.errors.get(n)) for n in lengths)] for row in rows if row.name not in PEERS.values()
    ]
    return "distance from exact softmax attention at the same queries, keys and values", _head(lengths), cells


def package_table(rows: Sequence[Row], lengths: Sequence[int]) -> Table:
    pairs = [(own, other, what) for own, other in packages(rows) for what in PASSES]
    cells = [
        [f"{own.name}, {what}", *(_plain(own.ratios(other, what).get(length)) for length in lengths)]
        for own, other, what in pairs
    ]
    return "times as fast as the package of the same name", _head(lengths), cells


def packages(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Mixers with the packages they have to beat."""
    named = {row.name: row for row in rows}
    return [(named[own], named[other]) for own, other in PEERS.items() if own in named and other in named]


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every single figure."""
    base = next(row for row in rows if row.name == BASE)
    peers = {own.name: other for own, other in packages(rows)}
    return [
        {
            "mixer": row.name,
            "missing": row.missing,
            "errors": row.errors,
            "passes": {
                what: {
                    "seconds": costs.seconds,
                    "bytes": costs.bytes,
                    "left_out": costs.left_out,
                    "exponent": row.fitted(what),
                    "memory_exponent": row.fitted(what, "bytes"),
                    "ahead_from": row.ahead(base, what),
                    "times_package": row.ratios(peers[row.name], what) if row.name in peers else {},
                }
                for what, costs in row.costs.items()
            },
        }
        for row in rows
    ]


def picture(rows: Sequence[Row], note: str) -> Drawing:
    """Time and memory over length on logarithmic scales, side by side."""
    panels = [_chart(rows, f"milliseconds, {BOTH}", _milliseconds), _chart(rows, f"peak megabytes, {BOTH}", _megabytes)]
    title = "What approximation costs"
    shapes: list[Shape] = [Text(28, 36, title, 19, bold=True), Text(28, 58, note, 12.5, colour.SOFT)]
    left = 28.0
    for panel in panels:
        shapes += panel.shapes(left, 74)
        left += panel.width + 28
    wide = max(left, 56 + text_width(note, 12.5))
    return Drawing(wide, 74 + max(panel.height for panel in panels) + 14, tuple(shapes), title)


def _chart(rows: Sequence[Row], name: str, of: Callable[[Row], dict[int, float]]) -> Chart:
    """Exact attention black and thick; a package in the colour of our mixer, thin."""
    own = {package: mixer for mixer, package in PEERS.items()}
    names = [row.name for row in rows if row.name not in own and row.name != BASE]
    hues = {BASE: colour.INK, **{each: HUES[i % len(HUES)] for i, each in enumerate(names)}}
    lines = tuple(
        Line(
            row.name,
            list(found),
            list(found.values()),
            hues[own.get(row.name, row.name)],
            3.0 if row.name == BASE else 0.8 if row.name in own else 1.6,
        )
        for row in rows
        if len(found := of(row)) > 1
    )
    return Chart(name, "length", name, lines, log_x=True, wide=420, high=420)


def _milliseconds(row: Row) -> dict[int, float]:
    return {length: 1e3 * seconds for length, seconds in row.costs[BOTH].times.items()}


def _megabytes(row: Row) -> dict[int, float]:
    return {length: count / 1e6 for length, count in row.costs[BOTH].bytes.items() if count}


def _head(lengths: Sequence[int]) -> list[str]:
    return ["mixer", *(f"{length:,}" for length in lengths)]


def _cells(
    row: Row, what: str, found: Mapping[int, float], lengths: Sequence[int], write: Callable[[float], str]
) -> list[str]:
    return [write(found[n]) if n in found else row.costs[what].left_out.get(n, "-") for n in lengths]


def _ahead(length: float | None, lengths: Sequence[int]) -> str:
    if length is None:
        return "never"
    return f"<= {lengths[0]:,}" if length == lengths[0] else f"{length:,.0f}"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}" if value < 1e-3 else f"{value:.3f}"
