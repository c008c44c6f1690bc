"""Render a comparison as a text table, Markdown or JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from math import isfinite, isnan
from statistics import fmean
from typing import Any

from headwise.compare.analysis import analyse, describe_analysis
from headwise.compare.config import Published
from headwise.compare.contest import describe_contest
from headwise.compare.estimate import Estimate, estimate_difference, estimate_score
from headwise.compare.reach import describe_reach, find_reach
from headwise.compare.values import Arm, Comparison, Outcome
from headwise.utils.console import make_console

WIDTH = 400  # characters of a line where stdout is no terminal
MEAN_COLUMNS: dict[str, tuple[Callable[[Outcome], float | None], Callable[[float], str]]] = {
    "parameters": (lambda outcome: outcome.parameters, lambda number: f"{number:,.0f}"),
    "FLOPs/{unit}": (lambda outcome: outcome.flops_per_token, lambda number: format_si(number)),
    "{unit}s/s": (lambda outcome: outcome.tokens_per_second, lambda number: f"{number:,.0f}"),
    "steps/s": (lambda outcome: outcome.steps_per_second, lambda number: f"{number:.3g}"),
    "minutes": (lambda outcome: outcome.minutes, lambda number: f"{number:.1f}"),
}


def format_si(number: float) -> str:
    """
    >>> format_si(950.0), format_si(1_234_000)
    ('950', '1.23M')
    """
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}T"


def best_arm(comparison: Comparison) -> str:
    """The arm with the best mean; empty if there is only one arm, or the better direction is not known."""
    means = {
        name: estimated.mean
        for name in comparison.arms
        if (estimated := estimate_score(comparison, name, comparison.score))
    }
    if len(means) < 2 or comparison.lower is None:
        return ""
    return (min if comparison.lower else max)(means, key=lambda name: means[name])


def build_rows(comparison: Comparison) -> list[list[str]]:
    """The header, a row per arm, a row per published figure; empty columns are dropped."""
    winner = best_arm(comparison)
    first = next(iter(comparison.arms), "")
    score = comparison.score
    means = (name.format(unit=comparison.unit) for name in MEAN_COLUMNS)
    reach = find_reach(comparison)
    with_flops = reach is not None and reach.unit == "FLOPs"
    compute = [*(["training FLOPs"] if with_flops else []), *([reach.name] if reach else [])]
    header = ["arm", "seeds", *means, *compute, *comparison.scores, f"{score} - {first}", "published"]
    rows = [header]
    for name, arm in comparison.arms.items():
        difference = estimate_difference(comparison, name, first, score) if name != first else None
        rows.append(
            [
                name + (" *" if name == winner else ""),
                format_seeds(arm),
                *format_costs(arm),
                *([_format_training_flops(arm)] if with_flops else []),
                *([reach.format(name)] if reach else []),
                *(format_estimate(estimate_score(comparison, name, each)) for each in comparison.scores),
                format_estimate(difference, signed=True),
                format_published(arm.published, score),
            ]
        )
    blank = [""] * (len(header) - 2)
    rows += [[each.name, *blank, format_published(each, score)] for each in comparison.published]
    used = [number for number in range(len(header)) if any(row[number] for row in rows[1:])]
    return [[row[number] for number in used] for row in rows]


def build_notes(comparison: Comparison) -> list[str]:
    """The notes below the table."""
    notes = []
    if winner := best_arm(comparison):
        notes.append(f"* best {comparison.score}: {winner}")
    estimates = (estimate_score(comparison, name, comparison.score) for name in comparison.arms)
    over = {each.over for each in estimates if each and not isnan(each.margin)}
    kinds = {"seeds": "Student's t over seeds", "items": "bootstrap over the test items where there is one seed"}
    if over:
        notes.append(f"± 95 %: {', '.join(kinds[each] for each in sorted(over, reverse=True))}")
    notes += describe_reach(comparison) + describe_analysis(comparison)
    return notes + describe_contest(comparison) + describe_runs(comparison)


def describe_runs(comparison: Comparison) -> list[str]:
    """Which runs were measured before, when and where; and which failed."""
    recorded = Counter(outcome.recorded for outcome in comparison.outcomes if outcome.recorded)
    total = len(comparison.outcomes)
    notes = [f"recorded, not trained here: {count} of {total} runs ({text})" for text, count in recorded.items()]
    return notes + [
        f"{name}, seed {seed} failed: {sentence}"
        for name, arm in comparison.arms.items()
        for seed, sentence in arm.failures.items()
    ]


def print_text(comparison: Comparison) -> None:
    print_text_table(comparison.title, build_rows(comparison), build_notes(comparison))


def print_markdown(comparison: Comparison) -> None:
    print_markdown_table(comparison.title, build_rows(comparison), build_notes(comparison))


def print_text_table(heading: str, grid: Sequence[Sequence[str]], remarks: Sequence[str]) -> None:
    """Print a table; a row whose name ends with a star is bold."""
    from rich.markup import escape
    from rich.table import Table

    header, *body = grid
    table = Table(box=None, header_style="bold")
    for number, title in enumerate(header):
        table.add_column(escape(title), justify="right" if number > 0 and title != "published" else "left")
    for row in body:
        table.add_row(*map(escape, row), style="bold" if row[0].endswith(" *") else "")
    print(heading)
    make_console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    print("\n".join(remarks))


def print_markdown_table(heading: str, grid: Sequence[Sequence[str]], remarks: Sequence[str]) -> None:
    header, *body = grid
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *body]
    print(f"**{heading}**\n")
    print(
        "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|").replace(" *", " \\*") for cell in row) + " |" for row in lines
        )
    )
    print("".join(f"\n{note.replace('*', chr(92) + '*')}  " for note in remarks))


def print_json(comparison: Comparison) -> None:
    print(json.dumps(to_json(comparison), indent=1))


def to_json(comparison: Comparison) -> dict[str, Any]:
    """All values: outcomes by seed, estimates by score, differences to the first arm, the analysis against published
    figures. Numbers that are not finite are None, as JSON has none."""
    first, winner = next(iter(comparison.arms), ""), best_arm(comparison)

    def describe_arm(arm: Arm) -> dict[str, Any]:
        return {
            "name": arm.name,
            "best": arm.name == winner,
            "seeds": {str(seed): outcome.to_json() for seed, outcome in arm.outcomes.items()},
            "failures": {str(seed): sentence for seed, sentence in arm.failures.items()},
            "estimates": {name: _to_dict(estimate_score(comparison, arm.name, name)) for name in comparison.scores},
            "differences": {
                name: _to_dict(estimate_difference(comparison, arm.name, first, name)) for name in comparison.scores
            }
            if arm.name != first
            else {},
            "published": arm.published.model_dump(),
        }

    values: dict[str, Any] = {
        "title": comparison.title,
        "score": comparison.score,
        "lower": comparison.lower,
        "arms": [describe_arm(arm) for arm in comparison.arms.values()],
        "published": [each.model_dump() for each in comparison.published],
        "analysis": {each.score: each.to_json() for each in analyse(comparison)},
    }
    if reach := find_reach(comparison):
        values["reach"] = asdict(reach)
    return {key: _replace_nonfinite(value) for key, value in values.items()}


FORMATS: dict[str, Callable[[Comparison], None]] = {"text": print_text, "markdown": print_markdown, "json": print_json}


def _replace_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_nonfinite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _to_dict(estimate: Estimate | None) -> dict[str, Any] | None:
    return asdict(estimate) if estimate else None


def format_seeds(arm: Arm) -> str:
    """How many seeds have finished, and of how many if some failed."""
    count = len(arm.outcomes)
    return f"{count} of {count + len(arm.failures)}" if arm.failures else str(count)


def format_costs(arm: Arm) -> list[str]:
    """The means over seeds of `MEAN_COLUMNS`."""
    return [_format_mean(arm, *column) for column in MEAN_COLUMNS.values()]


def _format_mean(arm: Arm, get: Callable[[Outcome], float | None], show: Callable[[float], str]) -> str:
    values = [value for outcome in arm.outcomes.values() if (value := get(outcome)) is not None]
    return show(fmean(values)) if values else ""


def _format_training_flops(arm: Arm) -> str:
    return _format_flops(cost for outcome in arm.outcomes.values() if (cost := outcome.training_flops) is not None)


def _format_flops(values: Iterable[float]) -> str:
    """The mean over seeds."""
    costs = list(values)
    return f"{fmean(costs):.2g}" if costs else ""


def format_estimate(estimate: Estimate | None, signed: bool = False) -> str:
    """A mean and its margin, rounded to significant digits; without a margin if one seed has no interval.

    >>> format_estimate(Estimate(2.1837, 2.1797, 2.1877, 3, "seeds"))
    '2.184 ± 0.004'
    """
    if not estimate:
        return ""
    margin = estimate.margin
    digits = 1 if abs(estimate.mean) >= 10 and margin >= 0.1 else 3 if isnan(margin) or margin < 0.01 else 2
    mean = f"{estimate.mean:{'+' if signed else ''}.{digits}f}"
    return mean if isnan(margin) else f"{mean} ± {margin:.{digits}f}"


def format_published(figure: Published, score: str) -> str:
    """Published figures; the ranking score comes first, without its name.

    >>> figure = {"SER": 20.6, "PER": 5.2, "std": {"PER": 0.1}, "source": "2019"}
    >>> format_published(Published.model_validate(figure), "SER")
    '20.6, PER 5.2 ± 0.1 (2019)'
    """
    names = sorted(figure.scores, key=lambda name: name != score)
    text = ", ".join(("" if name == score else f"{name} ") + format_figure(figure, name) for name in names)
    return f"{text} ({figure.source})" if figure.source and text else text


def format_figure(figure: Published, score: str) -> str:
    """One published figure with its standard deviation, if that is published."""
    return f"{figure.scores[score]:g}" + (f" ± {figure.std[score]:g}" if score in figure.std else "")
