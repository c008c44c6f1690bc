"""Render a search as a text table or JSON."""

from __future__ import annotations

import json

from headwise.compare.render import print_text_table
from headwise.runs.metrics import to_json_values
from headwise.search.space import Value
from headwise.search.values import SearchResult

TOP = 10  # trials in the table


def format_value(value: Value | None) -> str:
    """
    >>> format_value(0.000123456), format_value(4), format_value("rotary"), format_value(None)
    ('0.000123', '4', 'rotary', '')
    """
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


def build_rows(result: SearchResult, top: int = TOP) -> list[list[str]]:
    """The header, the best trials, and a last row with the importances."""
    keys = list(dict.fromkeys(key for trial in result.trials for key in trial.values))
    rows = [["trial", result.score, *keys, "minutes"]]
    for place, trial in enumerate(result.ranking[:top]):
        minutes = "" if trial.minutes is None else f"{trial.minutes:.1f}"
        name = f"{trial.run.name}{' *' if place == 0 else ''}"
        score = "" if trial.score is None else f"{trial.score:.4g}"
        rows.append([name, score, *(format_value(trial.values.get(key)) for key in keys), minutes])
    if result.importances:
        shares = (f"{result.importances.get(key, 0.0):.0%}" for key in keys)
        rows.append(["importance", "", *shares, ""])
    return rows


def build_notes(result: SearchResult) -> list[str]:
    """The notes below the table."""
    counts = (
        f"{count} {state}" for state in ("complete", "pruned", "failed", "running") if (count := result.count(state))
    )
    notes = [f"{len(result.trials)} trials: {', '.join(counts)}; {'lower' if result.lower else 'higher'} is better"]
    if result.best_file and result.best:
        notes.append(f"* best {result.score}: {result.best_file}")
    return notes + [f"{trial.run.name} failed: {trial.failure}" for trial in result.trials if trial.failure]


def print_text(result: SearchResult) -> None:
    print_text_table(result.name, build_rows(result), build_notes(result))


def print_json(result: SearchResult) -> None:
    print(json.dumps(to_json_values(result.to_json()), indent=1))
