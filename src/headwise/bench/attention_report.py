"""Report of mixer costs over length as tables, JSON and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwise.bench.attention import BASE, PASSES, PEERS, MixerCosts
from headwise.explain.chart import COLOURS, Chart, Line
from headwise.inspect import colour
from headwise.inspect.svg import Drawing, Shape, Text, text_width

BOTH = "forward and backward"
Table = tuple[str, list[str], list[list[str]]]  # title, columns, cells


def build_tables(rows: Sequence[MixerCosts], lengths: Sequence[int]) -> list[Table]:
    """Times of both passes, memory, errors, and the packages of the same name."""
    measured = [row for row in rows if any(costs.seconds for costs in row.costs.values())]
    tables = [*(time_table(measured, lengths, what) for what in PASSES), memory_table(measured, lengths)]
    tables.append(error_table(measured, lengths))
    return [*tables, package_table(measured, lengths)] if pair_packages(measured) else tables


def time_table(rows: Sequence[MixerCosts], lengths: Sequence[int], what: str) -> Table:
    base = next(row for row in rows if row.name == BASE)
    cells = [
        [
            row.name,
            *_format_cells(row, what, row.costs[what].times, lengths, lambda seconds: f"{1e3 * seconds:,.0f}"),
            _format_number(row.fit_exponent(what)),
            "-" if row is base else _format_crossover(row.crossover_length(base, what), lengths),
        ]
        for row in rows
    ]
    return f"milliseconds, {what}", [*_header(lengths), "exponent", "ahead from"], cells


def memory_table(rows: Sequence[MixerCosts], lengths: Sequence[int]) -> Table:
    cells = [
        [
            row.name,
            *_format_cells(row, BOTH, row.costs[BOTH].bytes, lengths, lambda count: f"{count / 1e6:,.0f}"),
            _format_number(row.fit_exponent(BOTH, "bytes")),
        ]
        for row in rows
    ]
    return f"peak megabytes, {BOTH}", [*_header(lengths), "exponent"], cells


def error_table(rows: Sequence[MixerCosts], lengths: Sequence[int]) -> Table:
    cells = [
        [row.name, *(_format_error(row.errors.get(n)) for n in lengths)]
        for row in rows
        if row.name not in PEERS.values()
    ]
    return "distance from exact softmax attention at the same queries, keys and values", _header(lengths), cells


def package_table(rows: Sequence[MixerCosts], lengths: Sequence[int]) -> Table:
    pairs = [(own, other, what) for own, other in pair_packages(rows) for what in PASSES]
    cells = [
        [f"{own.name}, {what}", *(_format_number(own.speedups(other, what).get(length)) for length in lengths)]
        for own, other, what in pairs
    ]
    return "times as fast as the package of the same name", _header(lengths), cells


def pair_packages(rows: Sequence[MixerCosts]) -> list[tuple[MixerCosts, MixerCosts]]:
    """Pairs of our mixer and the package of the same name."""
    named = {row.name: row for row in rows}
    return [(named[own], named[other]) for own, other in PEERS.items() if own in named and other in named]


def to_json(rows: Sequence[MixerCosts]) -> list[dict[str, Any]]:
    """All values as plain data."""
    base = next(row for row in rows if row.name == BASE)
    peers = {own.name: other for own, other in pair_packages(rows)}
    return [
        {
            "mixer": row.name,
            "missing": row.missing,
            "errors": row.errors,
            "passes": {
                what: {
                    "seconds": costs.seconds,
                    "bytes": costs.bytes,
                    "skipped": costs.skipped,
                    "exponent": row.fit_exponent(what),
                    "memory_exponent": row.fit_exponent(what, "bytes"),
                    "ahead_from": row.crossover_length(base, what),
                    "times_package": row.speedups(peers[row.name], what) if row.name in peers else {},
                }
                for what, costs in row.costs.items()
            },
        }
        for row in rows
    ]


def draw_report(rows: Sequence[MixerCosts], note: str) -> Drawing:
    """Time and memory over length on logarithmic scales, side by side."""
    panels = [
        _build_chart(rows, f"milliseconds, {BOTH}", _milliseconds),
        _build_chart(rows, f"peak megabytes, {BOTH}", _megabytes),
    ]
    title = "Cost of approximate attention"
    shapes: list[Shape] = [Text(28, 36, title, 19, bold=True), Text(28, 58, note, 12.5, colour.SOFT)]
    left = 28.0
    for panel in panels:
        shapes += panel.draw_at(left, 74)
        left += panel.width + 28
    wide = max(left, 56 + text_width(note, 12.5))
    return Drawing(wide, 74 + max(panel.height for panel in panels) + 14, tuple(shapes), title)


def _build_chart(rows: Sequence[MixerCosts], name: str, of: Callable[[MixerCosts], dict[int, float]]) -> Chart:
    """Exact attention black and thick; a package in the colour of our mixer, thin."""
    own = {package: mixer for mixer, package in PEERS.items()}
    names = [row.name for row in rows if row.name not in own and row.name != BASE]
    colours = {BASE: colour.INK, **{each: COLOURS[i % len(COLOURS)] for i, each in enumerate(names)}}
    lines = tuple(
        Line(
            row.name,
            list(values),
            list(values.values()),
            colours[own.get(row.name, row.name)],
            3.0 if row.name == BASE else 0.8 if row.name in own else 1.6,
        )
        for row in rows
        if len(values := of(row)) > 1
    )
    return Chart(name, "length", name, lines, log_x=True, plot_width=420, plot_height=420)


def _milliseconds(row: MixerCosts) -> dict[int, float]:
    return {length: 1e3 * seconds for length, seconds in row.costs[BOTH].times.items()}


def _megabytes(row: MixerCosts) -> dict[int, float]:
    return {length: count / 1e6 for length, count in row.costs[BOTH].bytes.items() if count}


def _header(lengths: Sequence[int]) -> list[str]:
    return ["mixer", *(f"{length:,}" for length in lengths)]


def _format_cells(
    row: MixerCosts, what: str, values: Mapping[int, float], lengths: Sequence[int], write: Callable[[float], str]
) -> list[str]:
    return [write(values[n]) if n in values else row.costs[what].skipped.get(n, "-") for n in lengths]


def _format_crossover(length: float | None, lengths: Sequence[int]) -> str:
    if length is None:
        return "never"
    return f"<= {lengths[0]:,}" if length == lengths[0] else f"{length:,.0f}"


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _format_error(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}" if value < 1e-3 else f"{value:.3f}"
