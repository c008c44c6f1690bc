"""One cell of the table: an arm and a seed, its run folder, and the outcome saved there."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from headwise.compare.config import ArmConfig, ComparisonConfig
from headwise.compare.values import Outcome
from headwise.config.base import Config
from headwise.config.plugins import collect_parts
from headwise.errors import UserError
from headwise.experiment.config import Experiment, parse_experiment
from headwise.models.image_fields import ImageFields
from headwise.runs import Run
from headwise.runs.parts import read_parts
from headwise.utils.files import remove

FORMAT = 1  # of outcome.json; another number makes all outcomes stale
OUTCOME, ITEMS = "outcome.json", "items.json"
CellId = tuple[str, str]  # folder and name


class Cell(Config):
    """The job of one worker process, sent as JSON."""

    arm: str
    seed: int
    folder: str  # of all runs of the table
    experiment: Experiment
    checkpoint: str = "best"
    evaluate: dict[str, Any] | None = Field(default_factory=dict)  # None: the best validation score is the outcome
    curve: dict[str, float] = Field(default_factory=dict)  # scores from the validation curve, instead of an evaluation
    start: Cell | None = None  # the cell of another table whose run it is initialised from

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def id(self) -> CellId:
        return self.folder, self.name

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
        """Whether a run has this experiment, and the same parts files."""
        try:
            return read_parts(run.path) == collect_parts(self.experiment) and self.has_settings(run.config)
        except UserError:  # incomplete
            return False

    def has_settings(self, config: Mapping[str, Any]) -> bool:
        """Whether these are the settings of its experiment. They are all settings of their time: a default that changed
        since makes another experiment; a setting added since has its default."""
        try:
            experiment = parse_experiment(config)
        except UserError:  # written by a version with other settings
            return False
        return self._list_settings(experiment) == self._list_settings(self.experiment)

    def _list_settings(self, experiment: Experiment) -> dict[str, Any]:
        """All settings but the size of images, which a run has from its data."""
        settings = self.shorten_start(experiment).model_dump()
        sizes = ImageFields.model_fields if isinstance(experiment.model, ImageFields) else ()
        settings["model"] = {key: value for key, value in settings["model"].items() if key not in sizes}
        return settings

    def shorten_start(self, experiment: Experiment) -> Experiment:
        """The experiment with the name of the run that it starts from instead of its path: all runs may have been moved
        since."""
        if self.start is None:
            return experiment
        return experiment.replace(init_from="/".join(Path(experiment.init_from).parts[-2:]))

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

    def hand_down(self) -> dict[str, Any]:
        """The settings of a cell that starts from the run of this one."""
        run = self.find_run() or Run(Path(self.folder) / self.name)
        tables = self.experiment.model_dump(mode="json", include={"model", "tokeniser"})
        return {"init_from": f"{run.path}@{self.checkpoint}", **tables}

    @property
    def awaited(self) -> str:
        """The run that it starts from, as long as that is not finished; else empty."""
        if self.start is None or self.start.load_outcome():
            return ""
        return f"{Path(self.start.folder).name}/{self.start.name}"

    def describe_state(self) -> str:
        """The state in words, for a dry run."""
        if self.load_outcome():
            return "done"
        if self.awaited:
            return f"waits for {self.awaited}"
        run = self.find_run()
        return f"resumes at step {run.state.get('step', 0):,}" if run and run.steps() else "to train"


def build_cells(config: ComparisonConfig, runs: str | Path) -> Iterator[Cell]:
    """All cells, seed by seed, so that arms with a time budget share the same load and early results cover all arms."""
    start = config.read_start()
    starting_arms = {arm.name: arm for arm in start.arm} if start else {}
    for seed in config.seeds:
        for arm in config.arm:
            source = build_cell(start, starting_arms[arm.name], seed, runs) if start else None
            yield build_cell(config, arm, seed, runs, source)


def build_cell(
    config: ComparisonConfig, arm: ArmConfig, seed: int, runs: str | Path, start: Cell | None = None
) -> Cell:
    """The cell of an arm and a seed, which starts from the run of another one if there is a `start`."""
    folder = Path(runs) / (config.name or "table")
    return Cell(
        arm=arm.name,
        seed=seed,
        folder=str(folder),
        experiment=config.build_experiment(arm, seed, folder, start.hand_down() if start else {}),
        checkpoint=config.checkpoint,
        evaluate=config.evaluate,
        curve=config.curve,
        start=start,
    )
