"""A climbed ladder as rows of text, and these as a table for people, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any

from headwise.compare.render import print_markdown, print_text, scaled
from headwise.scaling.config import FEWEST
from headwise.scaling.values import FORMS, Fit, Relation, Scaling

HEADER = ["law", "form", "points", "decades", "exponent", "floor", "misfit", "Kaplan et al. 2020"]

Figure = tuple[float, float, float]


def rows(found: Scaling) -> list[list[str]]:
    """The header, and a row for each quantity and form."""
    return [HEADER, *(_row(each, form, fit) for each in found.relations.values() for form, fit in each.fits.items())]


def notes(found: Scaling) -> list[str]:
    """What the table does not say by itself, the range first."""
    listed = [caveat(found)] if found.relations else []
    for name, each in found.relations.items():
        if len(each.x) < FEWEST:
            listed.append(f"L({name}) is not fitted: it needs {FEWEST} points, there is {len(each.x)}")
    if all(len(rung.losses) == 1 for rung in found.rungs):
        listed.append("no intervals: one seed says nothing about others")
    else:
        listed.append("[ ] 95 %, bootstrap over the seeds of each rung: other sizes or texts may lie outside")
    if any(rung.repeats for rung in found.rungs):
        listed.append("some runs read their text more than once: D counts what was read, not what was new")
    if rates := [f"{rung.size} {rung.rate:g}" for rung in found.rungs if rung.rate]:
        listed.append(f"best learning rates: {', '.join(dict.fromkeys(rates))}")
    return listed + [f"{name} failed: {sentence}" for name, sentence in found.failures.items()]


def caveat(found: Scaling) -> str:
    """How far the points reach, and what follows."""
    ranges = (f"{each.decades:.1f} decades of {name} ({_ends(each)})" for name, each in found.relations.items())
    return f"Seen: {', '.join(ranges)}. A description of these runs, not a law: extrapolate nothing from it."


def text(found: Scaling) -> None:
    print_text(found.title, rows(found), notes(found))


def markdown(found: Scaling) -> None:
    print_markdown(found.title, rows(found), notes(found))


def as_json(found: Scaling) -> None:
    print(json.dumps(to_json(found), indent=1))


def to_json(found: Scaling) -> dict[str, Any]:
    """Everything: rungs with their curves, points, exponents and floors with intervals. NaN becomes null."""
    return {
        "title": found.title,
        "rungs": [
            {
                "size": rung.size,
                "N": rung.parameters,
                "D": rung.data,
                "rate": rung.rate,
                "losses": rung.losses.tolist(),
                "curve": {"tokens": rung.tokens.tolist(), "nll": rung.nll.tolist()},
            }
            for rung in found.rungs
        ],
        "laws": {
            name: {
                "x": each.x.tolist(),
                "loss": each.loss.tolist(),
                "decades": each.decades,
                "published": each.quantity.published,
                "fits": {form: _plain(fit) for form, fit in each.fits.items()},
            }
            for name, each in found.relations.items()
        },
        "notes": notes(found),
    }


FORMATS: dict[str, Callable[[Scaling], None]] = {"text": text, "markdown": markdown, "json": as_json}


def shown(figure: Figure) -> str:
    """
    >>> shown((0.0763, 0.0712, 0.0818)), shown((0.0763, float("nan"), float("nan")))
    ('0.076 [0.071, 0.082]', '0.076')
    """
    value, low, high = figure
    return f"{value:.3f} [{low:.3f}, {high:.3f}]" if isfinite(low) else f"{value:.3f}"


def _row(relation: Relation, form: str, fit: Fit) -> list[str]:
    first = form == next(iter(FORMS))
    return [
        f"L({relation.quantity.name})" if first else "",
        form,
        str(len(relation.x)),
        f"{relation.decades:.1f}",
        shown(fit.exponent),
        "" if first else shown(fit.floor),
        f"{100 * fit.misfit:.2f} %",
        f"{relation.quantity.published:.3f}" if first else "",
    ]


def _ends(relation: Relation) -> str:
    return f"{scaled(relation.x[0])} to {scaled(relation.x[-1])}"


def _plain(fit: Fit) -> dict[str, Any]:
    figures = {"exponent": fit.exponent, "floor": fit.floor}
    return {
        name: dict(zip(("value", "low", "high"), map(_number, each), strict=True)) for name, each in figures.items()
    } | {"misfit": fit.misfit}


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
