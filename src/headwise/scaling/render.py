"""Render the results of a ladder as a text table, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any

from headwise.compare.render import format_si, print_markdown_table, print_text_table
from headwise.scaling.config import MIN_POINTS
from headwise.scaling.values import FORMS, Fit, Relation, Scaling

HEADER = ["law", "form", "points", "decades", "exponent", "floor", "misfit", "Kaplan et al. 2020"]

Figure = tuple[float, float, float]


def build_rows(scaling: Scaling) -> list[list[str]]:
    """The header, and a row for each quantity and form."""
    return [
        HEADER,
        *(_build_row(each, form, fit) for each in scaling.relations.values() for form, fit in each.fits.items()),
    ]


def build_notes(scaling: Scaling) -> list[str]:
    """The notes below the table, the range first."""
    notes = [describe_range(scaling)] if scaling.relations else []
    for name, each in scaling.relations.items():
        if len(each.x) < MIN_POINTS:
            notes.append(f"L({name}) is not fitted: it needs {MIN_POINTS} points, there is {len(each.x)}")
    if all(len(rung.losses) == 1 for rung in scaling.rungs):
        notes.append("no intervals: they need more than one seed")
    else:
        notes.append("[ ] 95 %, bootstrap over the seeds of each rung; it does not cover other sizes or texts")
    if any(rung.repeats for rung in scaling.rungs):
        notes.append("some runs read their text more than once: D counts repeated tokens, too")
    if rates := [f"{rung.size} {rung.rate:g}" for rung in scaling.rungs if rung.rate]:
        notes.append(f"best learning rates: {', '.join(dict.fromkeys(rates))}")
    return notes + [f"{name} failed: {sentence}" for name, sentence in scaling.failures.items()]


def describe_range(scaling: Scaling) -> str:
    """The range of the points, and a warning against extrapolation."""
    ranges = (
        f"{each.decades:.1f} decades of {name} ({_format_range(each)})" for name, each in scaling.relations.items()
    )
    return f"Range: {', '.join(ranges)}. A description of these runs, not a law: do not extrapolate from it."


def print_text(scaling: Scaling) -> None:
    print_text_table(scaling.title, build_rows(scaling), build_notes(scaling))


def print_markdown(scaling: Scaling) -> None:
    print_markdown_table(scaling.title, build_rows(scaling), build_notes(scaling))


def print_json(scaling: Scaling) -> None:
    print(json.dumps(to_json(scaling), indent=1))


def to_json(scaling: Scaling) -> dict[str, Any]:
    """All values: rungs with their curves, points, exponents and floors with intervals. NaN becomes null."""
    return {
        "title": scaling.title,
        "rungs": [
            {
                "size": rung.size,
                "N": rung.parameters,
                "D": rung.data,
                "rate": rung.rate,
                "losses": rung.losses.tolist(),
                "curve": {"tokens": rung.tokens.tolist(), "nll": rung.nll.tolist()},
            }
            for rung in scaling.rungs
        ],
        "laws": {
            name: {
                "x": each.x.tolist(),
                "loss": each.loss.tolist(),
                "decades": each.decades,
                "published": each.quantity.published,
                "fits": {form: _fit_to_dict(fit) for form, fit in each.fits.items()},
            }
            for name, each in scaling.relations.items()
        },
        "notes": build_notes(scaling),
    }


FORMATS: dict[str, Callable[[Scaling], None]] = {"text": print_text, "markdown": print_markdown, "json": print_json}


def format_interval(figure: Figure) -> str:
    """
    >>> format_interval((0.0763, 0.0712, 0.0818)), format_interval((0.0763, float("nan"), float("nan")))
    ('0.076 [0.071, 0.082]', '0.076')
    """
    value, low, high = figure
    return f"{value:.3f} [{low:.3f}, {high:.3f}]" if isfinite(low) else f"{value:.3f}"


def _build_row(relation: Relation, form: str, fit: Fit) -> list[str]:
    first = form == next(iter(FORMS))
    return [
        f"L({relation.quantity.name})" if first else "",
        form,
        str(len(relation.x)),
        f"{relation.decades:.1f}",
        format_interval(fit.exponent),
        "" if first else format_interval(fit.floor),
        f"{100 * fit.misfit:.2f} %",
        f"{relation.quantity.published:.3f}" if first else "",
    ]


def _format_range(relation: Relation) -> str:
    return f"{format_si(relation.x[0])} to {format_si(relation.x[-1])}"


def _fit_to_dict(fit: Fit) -> dict[str, Any]:
    figures = {"exponent": fit.exponent, "floor": fit.floor}
    return {
        name: dict(zip(("value", "low", "high"), map(_finite_or_none, each), strict=True))
        for name, each in figures.items()
    } | {"misfit": fit.misfit}


def _finite_or_none(value: float) -> float | None:
    return value if isfinite(value) else None
