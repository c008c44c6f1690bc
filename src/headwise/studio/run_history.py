"""The state of runs, their metrics and their samples."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from headwise.errors import UserError
from headwise.runs import Run, summarize_run
from headwise.runs.differences import flatten
from headwise.studio.run_registry import RunFolder

# setting of [train] -> counter in the run's state
BUDGETS = {
    "steps": "step",
    "epochs": "epoch",
    "minutes": "minutes",
    "tokens": "tokens",
    "flops": "flops",
    "patience": "stale",
}
MAX_SAMPLES = 100  # validations whose samples are sent


def summarize(folder: RunFolder) -> dict[str, Any]:
    """A run as one row of the table of runs."""
    entry = folder.to_dict()
    if folder.run is None or "problem" in entry:
        return {**entry, "state": "folder" if folder.run is None else "damaged"}
    totals = summarize_run(folder.run)
    if totals.problem:
        return {**entry, "state": "damaged", "problem": totals.problem}
    return {
        **entry,
        "state": get_state(folder.run),
        "steps": totals.steps,
        "epochs": totals.epochs,
        "minutes": to_json_number(totals.minutes),
        "score": totals.score,
        "best": to_json_number(totals.best),
        "created": totals.created,
    }


def get_state(run: Run) -> str:
    """running, done, interrupted, or untrained (imported weights, or not started yet)."""
    if run.busy:
        return "running"
    progress, settings = run.state, flatten(run.config)
    if not progress.get("step"):
        return "untrained"
    limits = {counter: settings.get(f"train.{key}") for key, counter in BUDGETS.items()}
    spent = any(_is_spent(progress.get(counter, 0), limit) for counter, limit in limits.items())
    fitted_once = not any(
        "loss" in row for row in run.metrics.rows()
    )  # models without gradients are fitted in one pass, without steps
    return "done" if spent or fitted_once else "interrupted"


def _is_spent(spent: float, limit: Any) -> bool:
    return isinstance(limit, int | float) and 0 < limit <= spent


def get_rows(folder: RunFolder, since: int, step: int) -> dict[str, Any]:
    """The rows of metrics after the first `since`, if row `since` still has this step; otherwise all rows, since a
    resumed run rewrites some of them."""
    if folder.run is None:
        raise UserError(f"{folder.name}: a folder of another library has no curves; choose a run")
    all_rows = folder.run.metrics.rows()
    is_known = since <= len(all_rows) and (since == 0 or all_rows[since - 1].get("step") == step)
    start = since if is_known else 0
    return {
        "run": folder.name,
        "since": start,
        "rows": [flatten_row(row) for row in all_rows[start:]],
        "busy": folder.run.busy,
    }


def get_samples(folder: RunFolder) -> list[dict[str, Any]]:
    """The samples that the run wrote at its last validations."""
    if folder.run is None:
        raise UserError(f"{folder.name}: a folder of another library has no samples; choose a run")
    rows = [row for row in folder.run.metrics.rows() if row.get("samples")]
    return [{"step": row["step"], "samples": row["samples"]} for row in rows[-MAX_SAMPLES:]]


def flatten_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a row by name; validation scores get the prefix "valid ".

    >>> flatten_row({"step": 2, "valid": {"nll": 1.5}, "loss": float("nan"), "skipped": [1, 2]})
    {'step': 2, 'loss': None, 'valid nll': 1.5}
    """
    valid = row.get("valid")
    scores = {f"valid {name}": value for name, value in valid.items()} if isinstance(valid, Mapping) else {}
    values = {**row, **scores}
    return {
        name: to_json_number(value) for name, value in values.items() if value is None or isinstance(value, int | float)
    }


def to_json_number(value: Any) -> Any:
    """Replace numbers that are not finite by None: JSON has no NaN.

    >>> to_json_number(float("inf")), to_json_number(2)
    (None, 2)
    """
    return None if isinstance(value, float) and not isfinite(value) else value
