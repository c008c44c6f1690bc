"""The results of a search as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwise.search.space import Value


@dataclass(frozen=True)
class TrialResult:
    """One trial: an ordinary run with its own values of the searched keys."""

    number: int
    state: str  # complete, pruned, failed or running (stopped, to be resumed)
    score: float | None  # the best validation score; of a pruned trial, the best so far
    values: Mapping[str, Value]  # by key
    run: Path
    minutes: float | None = None  # of training
    failure: str = ""  # the error message of a failed trial


@dataclass(frozen=True)
class SearchResult:
    """All trials of a search, in the order in which they were started."""

    name: str
    score: str  # the validation score that is searched for
    lower: bool  # lower is better
    trials: tuple[TrialResult, ...]
    importances: Mapping[str, float]  # of the keys, summing to one; empty with too few complete trials
    best_file: Path | None = None  # the experiment file of the best trial

    @property
    def ranking(self) -> list[TrialResult]:
        """The complete trials, the best first."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return sorted(complete, key=lambda trial: (trial.score or 0.0) * (1 if self.lower else -1))

    @property
    def best(self) -> TrialResult | None:
        return next(iter(self.ranking), None)

    def count(self, state: str) -> int:
        return sum(trial.state == state for trial in self.trials)

    def to_json(self) -> dict[str, Any]:
        """A plain dict for `json.dumps`, with the trials ranked first."""
        return {
            "name": self.name,
            "score": self.score,
            "lower": self.lower,
            "best": self.best.number if self.best else None,
            "best_file": str(self.best_file) if self.best_file else None,
            "importances": dict(self.importances),
            "trials": [asdict(trial) | {"run": str(trial.run)} for trial in self.trials],
        }

    def _repr_html_(self) -> str:
        from headwise.search.render import build_notes, build_rows
        from headwise.utils.notebook import render_table

        return render_table(self.name, build_rows(self), build_notes(self))
