"""The Optuna study of a search folder: a journal file (JSON lines) that a second call continues.

runs/NAME-search/
  search.json     the experiment and the ranges
  journal.jsonl   Optuna's journal: values, validation scores and states of all trials
  trial-N/        the run of a trial; trial-N.log is the output of its process
  best.toml       the experiment file of the best trial
  lock            held by the process that searches
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.search.space import Range
from headwise.train.state import Metric
from headwise.utils.extras import needed_for
from headwise.utils.files import open_regular, read_json, write, writing

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler

MIN_TRIALS = 4  # complete ones, for importances
STARTUP_TRIALS = 5  # complete ones before any is pruned


class ThreadLock:
    """A journal lock between threads; `lock_folder` excludes other processes, and leaves nothing behind when killed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def acquire(self) -> bool:
        return self.lock.acquire()

    def release(self) -> None:
        self.lock.release()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a search folder. The kernel releases the lock however the process ends."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(open_regular(folder / "lock", os.O_RDWR | os.O_CREAT), "r+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another process searches here; wait for it, or stop it") from None
        yield


def check_settings(folder: Path, experiment: Experiment, ranges: Sequence[Range]) -> None:
    """Save experiment and ranges in a new folder; refuse others in an old one."""
    file = folder / "search.json"
    settings: dict[str, Any] = {
        "experiment": experiment.model_dump(mode="json"),
        "over": {each.key: {"range": type(each).__name__, **asdict(each)} for each in ranges},
    }
    settings = json.loads(json.dumps(settings))
    try:
        saved = read_json(file)
    except FileNotFoundError:
        write(file, json.dumps(settings, indent=1))
        return
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({error}); restore a copy, or remove {folder}") from None
    for part, name in (("over", "set of ranges"), ("experiment", "experiment")):
        if not isinstance(saved, dict) or saved.get(part) != settings[part]:
            raise UserError(
                f"{folder}: its search has another {name}; "
                "give the same command to go on, or --set name=NAME for a new search"
            )


def open_study(folder: Path, metric: Metric, prune: bool) -> Study:
    """Open or create the study of a folder."""
    with needed_for("search"):
        import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = folder / "journal.jsonl"
    with writing(journal):
        drop_partial_line(journal)
    backend = JournalFileBackend(str(journal), ThreadLock())  # type: ignore[arg-type]
    try:
        return optuna.create_study(
            storage=JournalStorage(backend),
            study_name="search",
            direction="minimize" if metric.lower else "maximize",
            pruner=optuna.pruners.MedianPruner(STARTUP_TRIALS) if prune else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
    except (ValueError, KeyError) as error:
        raise UserError(f"{journal}: cannot be read ({error}); restore a copy, or remove {folder}") from None


def drop_partial_line(journal: Path) -> None:
    """Cut off a last line that a killed process left incomplete: the next entry would be appended to it."""
    if not journal.exists():
        return
    with os.fdopen(open_regular(journal, os.O_RDWR), "r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def make_sampler(seed: int, number: int, parallel: bool) -> BaseSampler:
    """A tree-structured Parzen estimator (TPE) for the trial of this number. Its random state depends on seed and
    number alone, so that a continued search suggests what an uninterrupted one would."""
    import numpy as np
    from optuna.samplers import TPESampler

    state = int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental arguments
        return TPESampler(seed=state, constant_liar=parallel)


def compute_importances(study: Study) -> dict[str, float]:
    """The importance of each key for the best tenth of the trials (PED-ANOVA); empty with too few complete trials, or
    if all have the same score."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    complete = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    if len(complete) < MIN_TRIALS or len({trial.value for trial in complete}) == 1:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dict(get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()))
