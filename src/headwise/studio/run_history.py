"""How runs went: where each stands, and its rows of metrics from some row on."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from headwise.errors import UserError
from headwise.runs import Run, summary
from headwise.runs.differences import flattened
from headwise.studio.run_registry import Item

# setting -> what is spent
BUDGETS = {"steps": "step", "epochs": "epoch", "minutes": "minutes", "tokens": "tokens", "patience": "stale"}
MOST_SAMPLED = 100  # validations


def history(item: Item) -> dict[str, Any]:
    """A run in one line of a table."""
    told = item.to_dict()
    if item.run is None or "problem" in told:
        return {**told, "state": "folder" if item.run is None else "damaged"}
    found = summary(item.run)
    if found.problem:
        return {**told, "state": "damaged", "problem": found.problem}
    return {
        **told,
        "state": state(item.run),
        "steps": found.steps,
        "epochs": found.epochs,
        "minutes": finite(found.minutes),
        "score": found.score,
        "best": finite(found.best),
        "created": found.created,
    }


def state(run: Run) -> str:
    """running, done, interrupted, or untrained: a run that was made of weights from elsewhere, or has not begun."""
    if run.busy:
        return "running"
    stood, settings = run.state, flattened(run.config)
    if not stood.get("step"):
        return "untrained"
    limits = {own: settings.get(f"train.{key}") for key, own in BUDGETS.items()}
    spent = any(_is_spent(stood.get(own, 0), limit) for own, limit in limits.items())
    counted = not any("loss" in row for row in run.metrics.rows())  # taught in one pass, without steps
    return "done" if spent or counted else "interrupted"


def _is_spent(spent: float, limit: Any) -> bool:
    return isinstance(limit, int | float) and 0 < limit <= spent


def rows(item: Item, since: int, step: int) -> dict[str, Any]:
    """The rows of metrics after the first `since`, of which the last was of this step: all of them where that is no
    longer so, as a run that is resumed writes some anew."""
    if item.run is None:
        raise UserError(f"{item.name}: a folder of another library has no curves; choose a run")
    found = item.run.metrics.rows()
    known = since <= len(found) and (since == 0 or found[since - 1].get("step") == step)
    start = since if known else 0
    return {"run": item.name, "since": start, "rows": [flat(row) for row in found[start:]], "busy": item.run.busy}


def samples(item: Item) -> list[dict[str, Any]]:
    """What the run wrote at its last validations, to be looked at."""
    if item.run is None:
        raise UserError(f"{item.name}: a folder of another library has no samples; choose a run")
    kept = [row for row in item.run.metrics.rows() if row.get("samples")]
    return [{"step": row["step"], "samples": row["samples"]} for row in kept[-MOST_SAMPLED:]]


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name; scores of the validation are called after it.

    >>> flat({"step": 2, "valid": {"nll": 1.5}, "loss": float("nan"), "skipped": [1, 2]})
    {'step': 2, 'loss': None, 'valid nll': 1.5}
    """
    valid = row.get("valid")
    scores = {f"valid {name}": value for name, value in valid.items()} if isinstance(valid, Mapping) else {}
    every = {**row, **scores}
    return {name: finite(value) for name, value in every.items() if value is None or isinstance(value, int | float)}


def finite(value: Any) -> Any:
    """JSON has no NaN: a number that is not finite is null.

    >>> finite(float("inf")), finite(2)
    (None, 2)
    """
    return None if isinstance(value, float) and not isfinite(value) else value
