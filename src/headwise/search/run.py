"""Hyperparameter search: ask Optuna for values, train them in worker processes, prune by validation, keep the best."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.compare.cell import Cell
from headwise.compare.progress import Message, Progress, make_progress
from headwise.compare.run import WorkerPool
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.experiment.run import find_checkpoint_metric
from headwise.search.space import Choice, Range, Value, parse_ranges
from headwise.search.study import check_settings, compute_importances, lock_folder, make_sampler, open_study
from headwise.search.values import SearchResult, TrialResult
from headwise.train.state import Metric
from headwise.utils.extras import needed_for
from headwise.utils.files import write

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

BEST = "best.toml"


def search(
    file: str | Path,
    over: Sequence[str],
    trials: int = 20,
    runs: str | Path = "runs",
    *,
    changes: Sequence[str] = (),
    jobs: int = 0,
    seed: int = 1,
    prune: bool = True,
    show: Progress | None = None,
) -> SearchResult:
    """Hyperparameter search: find the values of the keys in `over` with the best validation score.

    Trials are ordinary runs in `runs/NAME-search`. Calling it again continues the search up to `trials` trials in all,
    pruned and failed ones included; stopped ones are resumed first. `jobs` trials run at once (0: one for each core).
    A trial whose best score is worse than the median of the others at the same validation is pruned. `changes` are
    those of `--set`.
    """
    if trials < 1:
        raise UserError(f"--trials {trials}: a search needs at least one trial")
    with needed_for("search"):
        import optuna  # noqa: F401  (before there is a folder)
    ranges = parse_ranges(over)
    experiment = check_ranges(file, changes, ranges)
    metric = find_checkpoint_metric(experiment)  # errors in the data come before there is a folder
    folder = Path(runs) / f"{experiment.name}-search"
    with lock_folder(folder):
        check_settings(folder, experiment, ranges)
        searching = Search(Path(file), changes, ranges, folder, metric, seed)
        searching.run(trials, WorkerPool(jobs, show or make_progress()), prune)
        return searching.collect()


def check_ranges(file: str | Path, changes: Sequence[str], ranges: Sequence[Range]) -> Experiment:
    """Validate the experiment with the ends of every range and with every choice; returns the unchanged one."""
    experiment = Experiment.read(file, changes)
    for each in ranges:
        if each.key in ("name", "seed"):
            raise UserError(f"--over {each.key}: is not a setting of the model; search over another key")
        for value in each.examples():
            Experiment.read(file, [*changes, f"{each.key}={value}"])
    return experiment


class Search:
    """One search folder while it is locked."""

    def __init__(
        self, file: Path, changes: Sequence[str], ranges: Sequence[Range], folder: Path, metric: Metric, seed: int
    ):
        self.file, self.changes, self.ranges = file, changes, ranges
        self.folder, self.metric, self.seed = folder, metric, seed
        self.lock = threading.Lock()  # of the study: values are asked for and scores told one at a time
        self.study: Study
        self.pool: WorkerPool

    def run(self, trials: int, pool: WorkerPool, prune: bool) -> None:
        """Run trials until `trials` of them are finished."""
        from optuna.trial import Trial, TrialState

        self.study, self.pool = open_study(self.folder, self.metric, prune), pool
        old = self.study.get_trials(deepcopy=False)
        if not old and (start := self._find_start()):
            self.study.enqueue_trial(start)
        self.stopped = [Trial(self.study, trial._trial_id) for trial in old if trial.state == TrialState.RUNNING]
        todo = trials - sum(trial.state.is_finished() for trial in old)
        if todo > 0:
            pool.run_jobs({f"job-{number}": self._run_trial for number in range(todo)})

    def _find_start(self) -> dict[str, Value]:
        """The experiment's own values, for the first trial; empty if one of them is not in its range."""
        tables = Experiment.read(self.file, self.changes).model_dump(mode="json")
        start = {each.key: find_value(tables, each) for each in self.ranges}
        return start if all(each.contains(start[each.key]) for each in self.ranges) else {}

    def _run_trial(self, threads: int) -> str:
        """Run one trial, a new one or one that was stopped; returns an error message, or an empty string."""
        from optuna.trial import TrialState

        trial = self._next_trial()
        try:
            cell = self._build_cell(trial)
            failure = self.pool.run_cell(cell, threads, Watcher(self, trial, cell))
            if self.pool.stopping:
                return ""  # the trial stays `running`, to be resumed
            outcome = cell.load_outcome()
            if outcome and self.metric.name not in outcome.scores:
                failure = f"it is scored by {', '.join(outcome.scores)}, the search by {self.metric.name}"
        except UserError as error:
            failure, outcome = str(error), None
        with self.lock:
            if failure:
                trial.set_user_attr("failure", failure)
                self.study.tell(trial, state=TrialState.FAIL)
            elif outcome is None:
                self.study.tell(trial, state=TrialState.PRUNED)
            else:
                trial.set_user_attr("minutes", outcome.minutes)
                self.study.tell(trial, outcome.scores[self.metric.name].value)
                if self.study.best_trial.number == trial.number:
                    self._write_best(cell.experiment)
        return failure

    def _next_trial(self) -> Trial:
        with self.lock:
            if self.stopped:
                return self.stopped.pop(0)
            trials = self.study.get_trials(deepcopy=False)
            self.study.sampler = make_sampler(self.seed, len(trials), self.pool.jobs != 1)
            trial = self.study.ask()
            for each in self.ranges:
                each.suggest(trial)
            return trial

    def _build_cell(self, trial: Trial) -> Cell:
        with self.lock:  # a trial killed in the middle of its suggestions gets the others now
            values = {each.key: each.suggest(trial) for each in self.ranges}
        changes = [f"{key}={value}" for key, value in values.items()]
        name = name_trial(trial.number)
        experiment = Experiment.read(self.file, [*self.changes, *changes, f"name={name}"])
        return Cell(arm=name, seed=experiment.seed, folder=str(self.folder), experiment=experiment, evaluate=None)

    def _write_best(self, experiment: Experiment) -> None:
        name = self.folder.name.removesuffix("-search") + "-best"
        write(self.folder / BEST, experiment.model_copy(update={"name": name}).to_toml())

    def collect(self) -> SearchResult:
        """The results so far."""
        file = self.folder / BEST
        trials = tuple(self._describe(trial) for trial in self.study.get_trials(deepcopy=False) if trial.params)
        return SearchResult(
            self.folder.name.removesuffix("-search"),
            self.metric.name,
            self.metric.lower,
            trials,
            compute_importances(self.study),
            file if file.exists() else None,
        )

    def _describe(self, trial: FrozenTrial) -> TrialResult:
        states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        reported = [value for value in trial.intermediate_values.values() if isfinite(value)]
        best_so_far = (min if self.metric.lower else max)(reported, default=None)
        return TrialResult(
            trial.number,
            states.get(trial.state.name, "running"),
            trial.value if trial.state.name == "COMPLETE" else best_so_far,
            trial.params,
            self.folder / name_trial(trial.number),
            trial.user_attrs.get("minutes"),
            trial.user_attrs.get("failure", ""),
        )


class Watcher:
    """Reports the validation scores of a worker to Optuna, and stops it if the trial is to be pruned.

    Trials are compared at the same number of validations, not of steps, as batch sizes may differ.
    """

    def __init__(self, search: Search, trial: Trial, cell: Cell):
        self.search, self.trial = search, trial
        run = cell.find_run()  # of a resumed trial
        self.steps = {row["step"] for row in run.metrics.rows() if "valid" in row} if run else set()

    def __call__(self, message: Message) -> str:
        score = message.get("valid", {}).get(self.search.metric.name)
        if score is None:
            return ""
        self.steps.add(message["step"])
        number = sum(step <= message["step"] for step in self.steps)
        with self.search.lock:
            reported = self.search.study.get_trials(deepcopy=False)[self.trial.number].intermediate_values
            if number not in reported:  # a resumed trial may repeat its last validation
                self.trial.report(score, number)
            finished = message["share"] >= 1.0  # its score counts, and there is nothing left to save
            return (
                f"pruned: {self.search.metric.name} {score:.4g}" if not finished and self.trial.should_prune() else ""
            )


def name_trial(number: int) -> str:
    return f"trial-{number}"


def find_value(tables: Mapping[str, Any], each: Range) -> Any:
    """The value of a key in the tables of an experiment; a table stands for its kind."""
    value: Any = tables
    for part in each.key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(each, Choice):
        value = value.get("kind") if isinstance(value, Mapping) else value
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value
