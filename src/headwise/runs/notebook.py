"""A run in a notebook: a small table and its curves as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isfinite

from headwise.runs.run import Run, Summary, summarize_run
from headwise.utils.notebook import render_table

WIDTH, HEIGHT, MARGIN = 356, 150, 34
LEFT = 50  # margin of the numbers beside the axis, such as 0.00146
Point = tuple[float, float]


def render_run(run: Run) -> str:
    """Render steps, minutes and best score, training loss and validation score."""
    summary = summarize_run(run)
    if summary.problem:
        return render_table(run.name, [["problem"], [summary.problem]])
    rows = [row for row in run.metrics.rows() if row.get("step") is not None]
    losses = [(row["step"], row["loss"]) for row in rows if row.get("loss") is not None]
    valid = [(row["step"], row["valid"].get(summary.score)) for row in rows if "valid" in row]
    scores = [(step, value) for step, value in valid if value is not None]
    curves = draw_curve("training loss", losses) + draw_curve(f"validation {summary.score}".strip(), scores)
    return f"<div>{render_table(run.name, build_rows(summary))}{curves}</div>"


def build_rows(summary: Summary) -> list[list[str]]:
    best = "" if summary.best is None else f"{summary.best:.4g}"
    header = ["steps", "epochs", "minutes", f"best {summary.score}".strip(), "created"]
    created = summary.created.replace("T", " ")[:16]
    return [header, [f"{summary.steps:,}", str(summary.epochs), f"{summary.minutes:.1f}", best, created]]


def draw_curve(title: str, points: Sequence[Point]) -> str:
    """Draw a line chart with the ends of both axes; it has no ids, which would be shared by a whole notebook."""
    points = [(x, y) for x, y in points if isfinite(x) and isfinite(y)]
    if not points:
        return ""
    (left, right), (low, high) = (_find_ends([point[axis] for point in points]) for axis in (0, 1))
    inner_width, inner_height = WIDTH - LEFT - MARGIN, HEIGHT - 2 * MARGIN
    path = " ".join(
        f"{LEFT + inner_width * (x - left) / (right - left):.1f},"
        f"{MARGIN + inner_height * (high - y) / (high - low):.1f}"
        for x, y in points
    )
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="2"/>' for x, y in (pair.split(",") for pair in path.split()))
    bottom = HEIGHT - MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(title)}" style="font: 10px sans-serif" fill="currentColor">'
        f'<text x="{LEFT}" y="16" style="font-weight: bold">{escape(title)}</text>'
        f'<path d="M{LEFT} {MARGIN}V{bottom}H{WIDTH - MARGIN}" fill="none" stroke="currentColor" opacity=".4"/>'
        f'<text x="{LEFT - 3}" y="{MARGIN + 4}" text-anchor="end">{high:.3g}</text>'
        f'<text x="{LEFT - 3}" y="{bottom}" text-anchor="end">{low:.3g}</text>'
        f'<text x="{LEFT}" y="{bottom + 13}">{left:.0f}</text>'
        f'<text x="{WIDTH - MARGIN}" y="{bottom + 13}" text-anchor="end">step {right:.0f}</text>'
        f'<polyline points="{path}" fill="none" stroke="#4c78a8" stroke-width="1.5"/><g fill="#4c78a8">{dots}</g></svg>'
    )


def _find_ends(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis, which are never equal, nor written alike."""
    low, high = min(values), max(values)
    margin = max(0.5, abs(low) * 0.05)
    return (low, high) if low < high else (low - margin, low + margin)
