"""One cell of the table: an arm and a seed, its run folder, and the outcome saved there."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from headwise.compare.config import ComparisonConfig
from headwise.compare.values import Outcome
from headwise.config.base import Config
from headwise.config.plugins import collect_parts
from headwise.errors import UserError
from headwise.experiment.config import Experiment, parse_experiment
from headwise.runs import Run
from headwise.runs.parts import read_parts
from headwise.utils.files import remove

FORMAT = 1  # of outcome.json; another number makes all outcomes stale
OUTCOME, ITEMS = "outcome.json", "items.json"


class Cell(Config):
    """The job of one worker process, sent as JSON."""

    arm: str
    seed: int
    folder: str  # of all runs of the table
    experiment: Experiment
    checkpoint: str = "best"
    evaluate: dict[str, Any] | None = Field(default_factory=dict)  # None: the best validation score is the outcome
    curve: dict[str, float] = Field(default_factory=dict)  # scores from the validation curve, instead of an evaluation

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def log(self) -> Path:
        """The log file of its process's stderr."""
        return Path(self.folder) / f"{self.name}.log"

    @property
    def key(self) -> str:
        """A digest of everything the outcome depends on besides the experiment."""
        # without a curve as before there were any, so that earlier outcomes stay valid
        text = json.dumps(
            [FORMAT, self.checkpoint, self.evaluate, *([self.curve] if self.curve else [])], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def find_run(self) -> Run | None:
        """The run of this experiment, if any. Runs with other settings are named `NAME-2` and so on, and are kept."""
        pattern = re.compile(re.escape(self.name) + r"(-\d+)?")
        runs = (Run(path) for path in sorted(Path(self.folder).glob(f"{self.name}*")) if pattern.fullmatch(path.name))
        return next((run for run in runs if self._matches(run)), None)

    def _matches(self, run: Run) -> bool:
        """Whether a run has this experiment, and the same parts files. Its config holds all settings of its time: a
        default that changed since makes it another experiment; a setting added since has its default."""
        try:
            same_parts = read_parts(run.path) == collect_parts(self.experiment)
            return same_parts and parse_experiment(run.config) == self.experiment
        except UserError:  # incomplete, or written by a version with other settings
            return False

    def load_outcome(self) -> Outcome | None:
        """The saved outcome; None if the cell still has to be trained or evaluated."""
        run = self.find_run()
        return Outcome.load(run.path / OUTCOME, self.key) if run else None

    def run_to_resume(self) -> Run | None:
        """The run to resume, if any. A run that was killed before its first checkpoint is deleted."""
        run = self.find_run()
        if run and not run.steps() and not run.busy:
            remove(run.path)
            return None
        return run

    def describe_state(self) -> str:
        """The state in words, for a dry run."""
        if self.load_outcome():
            return "done"
        run = self.find_run()
        return f"resumes at step {run.state.get('step', 0):,}" if run and run.steps() else "to train"


def build_cells(config: ComparisonConfig, runs: str | Path) -> Iterator[Cell]:
    """All cells, seed by seed, so that arms with a time budget share the same load and early results cover all arms."""
    folder = Path(runs) / (config.name or "table")
    for seed in config.seeds:
        for arm in config.arm:
            yield Cell(
                arm=arm.name,
                seed=seed,
                folder=str(folder),
                experiment=config.build_experiment(arm, seed, folder),
                checkpoint=config.checkpoint,
                evaluate=config.evaluate,
                curve=config.curve,
            )
