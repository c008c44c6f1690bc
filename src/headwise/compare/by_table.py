"""A suite with a row for each table and a column for each arm, as a paper compares methods on many inputs; its figures,
if they are given, stand beside ours, and the percentages that it printed are computed anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp, log
from statistics import fmean

from headwise.compare.config import ByTable
from headwise.compare.contest import describe_contest
from headwise.compare.estimate import estimate_score
from headwise.compare.render import describe_runs
from headwise.compare.values import Comparison

Comparisons = Mapping[str, Comparison]
ROUNDING = 0.15  # percentage points by which a printed percentage may differ from the one of rounded figures


def build_rows(comparisons: Comparisons, layout: ByTable) -> list[list[str]]:
    """The header, a row for each table, the geometric means of the gains."""
    arms = list(dict.fromkeys(arm for each in comparisons.values() for arm in each.arms))
    others = [arm for arm in layout.over if arm in arms]
    header = ["", *arms, *(f"over {arm}" for arm in others), f"search of {layout.arm}"]
    header += ["published " + " / ".join((layout.arm, *layout.over, *layout.beside))] if layout.published else []
    rows, ratios = [header], dict[str, list[float]]()
    for name, comparison in comparisons.items():
        row = [name, *(format_score(comparison, arm) for arm in arms)]
        for arm in others:
            ratio = compute_ratio(comparison, layout.arm, arm)
            ratios.setdefault(arm, []).extend([ratio] if ratio else [])
            row.append(format_gain(ratio))
        row.append(format_minutes(comparison, layout.arm))
        figures = layout.published.get(name, {})
        if layout.published:
            shown = (figures.get(arm, "-") for arm in (layout.arm, *layout.over, *layout.beside))
            row.append(" / ".join(each if isinstance(each, str) else f"{each:g}" for each in shown))
        rows.append(row)
    means = [format_gain(exp(fmean(map(log, ratios.get(arm) or [1.0]))) if ratios.get(arm) else None) for arm in others]
    last = ["geometric mean", *[""] * len(arms), *means, ""]
    return [*rows, last + [""] * (len(header) - len(last))]


def format_score(comparison: Comparison, arm: str) -> str:
    """The mean of the ranking score; for a run without one, what its table says of that (`by_table.missing`)."""
    if arm not in comparison.arms or not comparison.arms[arm].outcomes:
        return ""
    estimate = estimate_score(comparison, arm, comparison.score)
    if not estimate:
        return "none"
    return f"{estimate.mean:.4g}"


def compute_ratio(comparison: Comparison, arm: str, other: str) -> float | None:
    """Score of an arm / score of another one."""
    if not {arm, other} <= comparison.arms.keys():
        return None
    one, two = (estimate_score(comparison, name, comparison.score) for name in (arm, other))
    return one.mean / two.mean if one and two else None


def format_gain(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * (1 - ratio):+.1f} %"


def format_minutes(comparison: Comparison, arm: str) -> str:
    outcomes = comparison.arms[arm].outcomes.values() if arm in comparison.arms else ()
    minutes = [outcome.minutes for outcome in outcomes]
    return f"{60 * fmean(minutes):.0f} s" if minutes else ""


def build_notes(comparisons: Comparisons, layout: ByTable) -> list[str]:
    first = next(iter(comparisons.values()))
    notes = [
        f"{first.score} of each arm; none: {layout.none}",
        f"over X: 1 - {layout.arm} / X; search: seconds of training and validation",
    ]
    notes += check_printed(layout)
    for name, comparison in comparisons.items():
        notes += [f"{name}: {line}" for line in (*describe_contest(comparison), *describe_runs(comparison))]
    return notes


def check_printed(layout: ByTable) -> list[str]:
    """How the percentages that were printed follow from the figures beside them."""
    saved, gained, neither = 0, 0, list[str]()
    for name, other, ours, theirs, printed in list_printed(layout):
        if abs(printed - 100 * (1 - ours / theirs)) <= ROUNDING:
            saved += 1
        elif abs(printed - 100 * (theirs / ours - 1)) <= ROUNDING:
            gained += 1
        else:
            computed = f"{100 * (1 - ours / theirs):.1f} or {100 * (theirs / ours - 1):.1f}"
            neither.append(f"{name} over {other} (printed {printed:g} %, computed {computed})")
    if not saved + gained + len(neither):
        return []
    text = f"published percentages: {saved} are 1 - {layout.arm} / X, {gained} are X / {layout.arm} - 1"
    return [f"{text}, {len(neither)} are neither: {'; '.join(neither)}" if neither else text]


def list_printed(layout: ByTable) -> Iterator[tuple[str, str, float, float, float]]:
    """Row, other arm, both figures and the percentage that was printed."""
    for name, figures in layout.published.items():
        for other in layout.over:
            values = (figures.get(layout.arm), figures.get(other), figures.get(f"over {other}"))
            if all(isinstance(value, int | float) for value in values):
                ours, theirs, printed = (float(value) for value in values)  # type: ignore[arg-type]
                yield name, other, ours, theirs, printed
