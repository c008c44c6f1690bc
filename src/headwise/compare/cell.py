"""One cell of the table: an arm and a seed, its run folder, and the outcome that is kept there."""

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
from headwise.errors import UserError
from headwise.experiment.config import Experiment, resolved
from headwise.runs import Run
from headwise.utils.files import remove

FORMAT = 1  # of outcome.json; another number makes all outcomes stale
OUTCOME, ITEMS = "outcome.json", "items.json"


class Cell(Config):
    """A value that travels to the process that trains it."""

    arm: str
    seed: int
    folder: str  # of all runs of the table
    experiment: Experiment
    checkpoint: str = "best"
    evaluate: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def log(self) -> Path:
        """What its process says on stderr."""
        return Path(self.folder) / f"{self.name}.log"

    @property
    def key(self) -> str:
        """A digest of all that the outcome depends on besides the experiment, which is its run's."""
        text = json.dumps([FORMAT, self.checkpoint, self.evaluate], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def run(self) -> Run | None:
        """The run of this very experiment. Other settings have runs of their own, `NAME-2` and so on, that stay."""
        own = re.compile(re.escape(self.name) + r"(-\d+)?")
        found = (Run(path) for path in sorted(Path(self.folder).glob(f"{self.name}*")) if own.fullmatch(path.name))
        return next((run for run in found if self._is_of(run)), None)

    def _is_of(self, run: Run) -> bool:
        """A run has all settings of its time written down: a default that changed since is another experiment, a
        setting that came since is at the default, which is to do as before."""
        try:
            return resolved(run.config) == self.experiment
        except UserError:  # half written, or of a time that had other settings
            return False

    def outcome(self) -> Outcome | None:
        """What an earlier call left; None: there is still something to do."""
        run = self.run()
        return Outcome.load(run.path / OUTCOME, self.key) if run else None

    def begun(self) -> Run | None:
        """The run to resume. One that was killed before its first checkpoint is cleared away."""
        run = self.run()
        if run and not run.steps() and not run.busy:
            remove(run.path)
            return None
        return run

    def state(self) -> str:
        """In words, for those who look before they start."""
        if self.outcome():
            return "done"
        run = self.run()
        return f"resumes at step {run.state.get('step', 0):,}" if run and run.steps() else "to train"


def cells(config: ComparisonConfig, runs: str | Path) -> Iterator[Cell]:
    """Seed by seed, so that arms whose minutes are counted meet the same load, and early results cover all arms."""
    folder = Path(runs) / (config.name or "table")
    for seed in config.seeds:
        for arm in config.arm:
            yield Cell(
                arm=arm.name,
                seed=seed,
                folder=str(folder),
                experiment=config.experiment_of(arm, seed, folder),
                checkpoint=config.checkpoint,
                evaluate=config.evaluate,
            )
