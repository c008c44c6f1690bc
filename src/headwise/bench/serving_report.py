"""What was measured of servers as tables, JSON and a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from headwise.bench.serving import ArmResult, Point
from headwise.explain.chart import COLOURS, Chart, Line
from headwise.inspect import colour
from headwise.inspect.svg import Drawing, Shape, Text, text_width

OURS, CEILING = "headwise", "offline"
Table = tuple[str, list[str], list[list[str]]]  # title, columns, cells


def build_tables(results: Sequence[ArmResult], peer: str) -> list[Table]:
    """A table for each load, and one of memory."""
    measured = [result for result in results if result.points]
    loads = list(dict.fromkeys((point.clients, point.rate) for result in measured for point in result.points))
    return [*(build_load_table(measured, *load, peer) for load in loads), build_memory_table(measured)]


def build_load_table(results: Sequence[ArmResult], clients: int, rate: float, peer: str) -> Table:
    points = {result.name: point for result in results if (point := result.find(clients, rate))}
    base, first = points.get(peer), next(iter(points.values()))
    cells = [
        [
            name,
            f"{point.requests_per_second:.2f}",
            f"{point.tokens_per_second:,.0f}",
            *([format_ratio(point, base)] if clients else []),
            f"{1e3 * point.cpu:,.1f}",
            *(format_milliseconds(point.percentile(share)) for share in (0.5, 0.99)),
            *(format_milliseconds(point.percentile(share, "first")) for share in (0.5, 0.99)),
            str(point.errors),
            f"{point.agreement(first):.0%}",
        ]
        for name, point in points.items()
    ]
    many = f"{clients} clients, each with one request at a time" if clients > 1 else "1 client, one request at a time"
    title = many if clients else f"{rate:g} requests arrive a second"
    columns = ["server", "requests/s", "tokens/s", *([f"x {peer}"] if clients else []), "CPU ms"]
    columns += ["p50 ms", "p99 ms", "first p50", "first p99", "errors", "same texts"]
    return f"{title}; {first.requests} requests", columns, cells


def build_memory_table(results: Sequence[ArmResult]) -> Table:
    cells = [
        [result.name, *(f"{each / 1e6:,.0f}" for each in result.memory), format_growth(result), f"{result.served:,}"]
        for result in results
    ]
    return (
        "resident memory in MB",
        ["server", "after the first load", "at the end", "growth", "requests between"],
        cells,
    )


def format_growth(result: ArmResult) -> str:
    before, after = result.memory
    return f"{after / before - 1:+.1%}" if before else "-"


def format_ratio(point: Point, base: Point | None) -> str:
    return f"{point.tokens_per_second / base.tokens_per_second:.2f}" if base and base.tokens_per_second else "-"


def format_milliseconds(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{1e3 * seconds:,.1f}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def list_ratios(results: Sequence[ArmResult]) -> list[str]:
    """Sentences on what our server adds to its engine."""
    named = {result.name: result for result in results if result.points}
    if not {OURS, CEILING} <= set(named):
        return []
    sentences = []
    for point in named[OURS].points:
        alone = named[CEILING].find(point.clients)
        if not point.clients or alone is None:
            continue
        share, cpu = point.tokens_per_second / alone.tokens_per_second, alone.cpu / max(point.cpu, 1e-9)
        clients = f"{point.clients} client{'s' if point.clients > 1 else ''}"
        said = f"{clients}: {share:.2f} of the tokens/s of the engine without HTTP, {cpu:.2f} in processor time"
        if point.clients == 1:
            added = 1e3 * (point.percentile(0.5) - alone.percentile(0.5))
            begun = 1e3 * (point.percentile(0.5, "first") - alone.percentile(0.5, "first"))
            said += f"; an idle request takes {added:.1f} ms more, its first token {begun:.1f} ms"
        sentences.append(said)
    return sentences


def to_json(results: Sequence[ArmResult]) -> list[dict[str, Any]]:
    """All values as plain data; `agreement` is with the first server."""
    first = next(result for result in results if result.points)
    return [
        result.to_json()
        | {
            "points": [
                point.to_json() | {"agreement": point.agreement(first.find(point.clients, point.rate) or point)}
                for point in result.points
            ]
        }
        for result in results
    ]


def draw_report(results: Sequence[ArmResult], note: str) -> Drawing:
    """Tokens a second, latency and time to first token over the number of clients, and latency over arrivals."""
    measured = [result for result in results if result.points]
    panels = [
        build_chart(measured, "clients", "tokens/s", lambda point: point.tokens_per_second),
        build_chart(measured, "clients", "p99 latency, ms", lambda point: 1e3 * point.percentile(0.99)),
        build_chart(measured, "clients", "p50 first token, ms", lambda point: 1e3 * point.percentile(0.5, "first")),
        build_chart(measured, "rate", "p99 latency, ms", lambda point: 1e3 * point.percentile(0.99)),
    ]
    title = "Servers of one model under load"
    shapes: list[Shape] = [Text(28, 36, title, 19, bold=True), Text(28, 58, note, 12.5, colour.SOFT)]
    left, bottom = 28.0, 74.0
    for panel in panels:
        if panel is not None:
            shapes += panel.draw_at(left, 74)
            left, bottom = left + panel.width + 28, 74 + panel.height + 14
    return Drawing(max(left, 56 + text_width(note, 12.5)), bottom, tuple(shapes), title)


def build_chart(results: Sequence[ArmResult], over: str, what: str, value: Callable[[Point], float]) -> Chart | None:
    """None unless there are two loads."""
    lines = []
    for number, result in enumerate(results):
        points = [point for point in result.points if getattr(point, over)]
        if len(points) > 1:
            shade = COLOURS[number % len(COLOURS)]
            x = [float(getattr(point, over)) for point in points]
            lines.append(
                Line(result.name, x, [value(point) for point in points], shade, 2.6 if result.name == OURS else 1.6)
            )
    if not lines:
        return None
    label = "clients" if over == "clients" else "requests that arrive in a second"
    return Chart(what, label, what, tuple(lines), log_x=True, plot_width=330, plot_height=330)
