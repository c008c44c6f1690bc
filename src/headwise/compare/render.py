"""A comparison as rows of text, and these as a table for people, Markdown or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from headwise.compare.config import Published
from headwise.compare.estimate import Estimate, estimate, paired
from headwise.compare.values import Arm, Comparison, Outcome

MEANS: dict[str, tuple[Callable[[Outcome], float | None], Callable[[float], str]]] = {
    "parameters": (lambda outcome: outcome.parameters, lambda number: f"{number:,.0f}"),
    "FLOPs/{unit}": (lambda outcome: outcome.flops_per_token, lambda number: scaled(number)),
    "{unit}s/s": (lambda outcome: outcome.tokens_per_second, lambda number: f"{number:,.0f}"),
    "minutes": (lambda outcome: outcome.minutes, lambda number: f"{number:.1f}"),
}


def scaled(number: float) -> str:
    """
    >>> scaled(950.0), scaled(1_234_000)
    ('950', '1.23M')
    """
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}T"


def best(comparison: Comparison) -> str:
    """The arm with the best mean; empty where there is no choice or no one knows which way is better."""
    means = {name: found.mean for name in comparison.arms if (found := estimate(comparison, name, comparison.score))}
    if len(means) < 2 or comparison.lower is None:
        return ""
    return (min if comparison.lower else max)(means, key=lambda name: means[name])


def rows(comparison: Comparison) -> list[list[str]]:
    """The header, a row an arm, a row a published figure; columns that are empty throughout are left out."""
    winner = best(comparison)
    first = next(iter(comparison.arms), "")
    score = comparison.score
    means = (name.format(unit=comparison.unit) for name in MEANS)
    header = ["arm", "seeds", *means, *comparison.scores, f"{score} - {first}", "published"]
    found = [header]
    for name, arm in comparison.arms.items():
        difference = paired(comparison, name, first, score) if name != first else None
        found.append(
            [
                name + (" *" if name == winner else ""),
                _seeds(arm),
                *(_mean(arm, *how) for how in MEANS.values()),
                *(shown(estimate(comparison, name, each)) for each in comparison.scores),
                shown(difference, signed=True),
                published(arm.published, score),
            ]
        )
    blank = [""] * (len(header) - 2)
    found += [[each.name, *blank, published(each, score)] for each in comparison.published]
    used = [number for number in range(len(header)) if any(row[number] for row in found[1:])]
    return [[row[number] for number in used] for row in found]


def notes(comparison: Comparison) -> list[str]:
    """What the table does not say by itself."""
    found = []
    if winner := best(comparison):
        found.append(f"* best {comparison.score}: {winner}")
    over = {each.over for name in comparison.arms if (each := estimate(comparison, name, comparison.score))}
    kinds = {"seeds": "Student's t over seeds", "items": "bootstrap over the test items where there is one seed"}
    if over:
        found.append(f"± 95 %: {', '.join(kinds[each] for each in sorted(over, reverse=True))}")
    return found + failures(comparison)


def failures(comparison: Comparison) -> list[str]:
    return [
        f"{name}, seed {seed} failed: {sentence}"
        for name, arm in comparison.arms.items()
        for seed, sentence in arm.failures.items()
    ]


def text(comparison: Comparison) -> None:
    print_text(comparison.title, rows(comparison), notes(comparison))


def markdown(comparison: Comparison) -> None:
    print_markdown(comparison.title, rows(comparison), notes(comparison))


def print_text(heading: str, grid: Sequence[Sequence[str]], remarks: Sequence[str]) -> None:
    """A table for people; a row whose name ends with a star is set in bold."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    header, *body = grid
    table = Table(box=None, header_style="bold")
    for number, title in enumerate(header):
        table.add_column(escape(title), justify="right" if number > 0 and title != "published" else "left")
    for row in body:
        table.add_row(*map(escape, row), style="bold" if row[0].endswith(" *") else "")
    print(heading)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    print("\n".join(remarks))


def print_markdown(heading: str, grid: Sequence[Sequence[str]], remarks: Sequence[str]) -> None:
    header, *body = grid
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *body]
    print(f"**{heading}**\n")
    print(
        "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|").replace(" *", " \\*") for cell in row) + " |" for row in lines
        )
    )
    print("".join(f"\n{note.replace('*', chr(92) + '*')}  " for note in remarks))


def as_json(comparison: Comparison) -> None:
    print(json.dumps(to_json(comparison), indent=1))


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Everything: outcomes by seed, estimates by score, differences to the first arm."""
    first, winner = next(iter(comparison.arms), ""), best(comparison)

    def told(arm: Arm) -> dict[str, Any]:
        return {
            "name": arm.name,
            "best": arm.name == winner,
            "seeds": {str(seed): outcome.to_json() for seed, outcome in arm.outcomes.items()},
            "failures": {str(seed): sentence for seed, sentence in arm.failures.items()},
            "estimates": {name: _plain(estimate(comparison, arm.name, name)) for name in comparison.scores},
            "differences": {name: _plain(paired(comparison, arm.name, first, name)) for name in comparison.scores}
            if arm.name != first
            else {},
            "published": arm.published.model_dump(),
        }

    return {
        "title": comparison.title,
        "score": comparison.score,
        "lower": comparison.lower,
        "arms": [told(arm) for arm in comparison.arms.values()],
        "published": [each.model_dump() for each in comparison.published],
    }


FORMATS: dict[str, Callable[[Comparison], None]] = {"text": text, "markdown": markdown, "json": as_json}


def _plain(found: Estimate | None) -> dict[str, Any] | None:
    return asdict(found) if found else None


def _seeds(arm: Arm) -> str:
    count = len(arm.outcomes)
    return f"{count} of {count + len(arm.failures)}" if arm.failures else str(count)


def _mean(arm: Arm, get: Callable[[Outcome], float | None], show: Callable[[float], str]) -> str:
    values = [value for outcome in arm.outcomes.values() if (value := get(outcome)) is not None]
    return show(fmean(values)) if values else ""


def shown(found: Estimate | None, signed: bool = False) -> str:
    """A mean and its margin, with as many digits as the margin leaves."""
    if not found:
        return ""
    digits = 1 if abs(found.mean) >= 10 and found.margin >= 0.1 else 2
    return f"{found.mean:{'+' if signed else ''}.{digits}f} ± {found.margin:.{digits}f}"


def published(figure: Published, score: str) -> str:
    """The decisive score's figure alone without its name; others are named.

    >>> published(Published.model_validate({"SER": 20.6, "PER": 5.2, "source": "2019"}), "SER")
    '20.6, PER 5.2 (2019)'
    """
    figures = sorted(figure.scores.items(), key=lambda item: item[0] != score)
    listed = ", ".join(f"{value:g}" if name == score else f"{name} {value:g}" for name, value in figures)
    return f"{listed} ({figure.source})" if figure.source and listed else listed
