"""Observers of training (callbacks): metrics.jsonl, the progress bar, TensorBoard, MLflow, and a user's own.

from headwise.train.observers import OBSERVERS, Observer, ObserverConfig

class Printer(Observer):
    def on_validation(self, row):
        print(row["step"], row["valid"])

headwise.train_experiment(experiment, observers=[Printer()])
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.config.base import Config, Table
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.runs.metrics import Metrics
    from headwise.runs.run import Run
    from headwise.train.progress import Progress
    from headwise.train.state import Result

Row = Mapping[str, Any]
log = logging.getLogger(__name__)

OBSERVERS = Table(
    "observer",
    default="tensorboard",
    place="train.observers",
    homes={
        "tensorboard": "headwise.train.tensorboard:TensorboardConfig",
        "mlflow": "headwise.train.mlflow:MlflowConfig",
    },
)


class Observer:
    """A training callback: a subclass overrides what it needs. All calls come from the training process, in this
    order: `on_start` once, then rows and checkpoints, then `on_end` once."""

    def on_start(self, run: Run, config: Mapping[str, Any], step: int) -> None:
        """Training begins after `step` (0: a new run). `config` is the experiment, as in config.toml."""

    def on_metrics(self, row: Row) -> None:
        """A row of training metrics, every `train.log_every` steps, or of a skipped update (docs/runs.md)."""

    def on_validation(self, row: Row) -> None:
        """A row with the scores of a validation, `valid`, and `samples`."""

    def on_checkpoint(self, path: Path, step: int) -> None:
        """A checkpoint is complete in the folder `path`."""

    def on_end(self, result: Result | None) -> None:
        """Training ends: its budget is spent, patience, or a signal; None after an error."""


class ObserverConfig(Config):
    """Base of the configs in `train.observers`."""

    kind: str

    def build(self) -> Observer:
        """A new observer. A missing package is an error here, before there is a run; nothing is opened yet."""
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the observer")


class MetricsFile(Observer):
    """Appends the rows to metrics.jsonl."""

    def __init__(self, metrics: Metrics):
        self.on_metrics = self.on_validation = metrics.append  # type: ignore[method-assign]


class ProgressLog(Observer):
    """Shows the rows beside the progress bar."""

    def __init__(self, progress: Progress):
        self.on_metrics = self.on_validation = progress.log  # type: ignore[method-assign]


class Guarded(Observer):
    """An observer whose exceptions do not stop training: the first is logged, the others are dropped."""

    def __init__(self, observer: Observer):
        self.observer = observer
        self.failed = False

    def on_start(self, run: Run, config: Mapping[str, Any], step: int) -> None:
        self._call("on_start", run, config, step)

    def on_metrics(self, row: Row) -> None:
        self._call("on_metrics", row)

    def on_validation(self, row: Row) -> None:
        self._call("on_validation", row)

    def on_checkpoint(self, path: Path, step: int) -> None:
        self._call("on_checkpoint", path, step)

    def on_end(self, result: Result | None) -> None:
        self._call("on_end", result)

    def _call(self, method: str, *arguments: Any) -> None:
        try:
            getattr(self.observer, method)(*arguments)
        except Exception as error:
            if not self.failed:
                name, first_line = type(self.observer).__name__, str(error).partition("\n")[0]
                log.warning(
                    "observer %s: %s failed (%s: %s); training goes on, and further errors of it are not shown",
                    *(name, method, type(error).__name__, first_line),
                )
            self.failed = True


class Observers(Observer):
    """Several observers as one: `essential` ones, whose errors stop training, and others, which are guarded."""

    def __init__(self, essential: Sequence[Observer], others: Sequence[Observer] = ()):
        self.observers = [*essential, *map(Guarded, others)]

    @contextmanager
    def observe(self, run: Run, step: int) -> Iterator[list[Result]]:
        """Call `on_start`, and at the end `on_end` with the result that was appended to the list, if any."""
        results: list[Result] = []
        config = run.config
        for observer in self.observers:
            observer.on_start(run, config, step)
        try:
            yield results
        finally:
            for observer in self.observers:
                observer.on_end(results[-1] if results else None)

    def on_metrics(self, row: Row) -> None:
        for observer in self.observers:
            observer.on_metrics(row)

    def on_validation(self, row: Row) -> None:
        for observer in self.observers:
            observer.on_validation(row)

    def on_checkpoint(self, path: Path, step: int) -> None:
        for observer in self.observers:
            observer.on_checkpoint(path, step)


def select_scalars(row: Row) -> dict[str, float]:
    """The numbers of a row by the names that TensorBoard and MLflow show.

    >>> select_scalars({"step": 3, "loss": 2.5, "valid": {"nll": 2.0}})
    {'valid/nll': 2.0, 'train/loss': 2.5}
    """
    valid = {f"valid/{name}": value for name, value in row.get("valid", {}).items()}
    return valid | {f"train/{name}": row[name] for name in ("loss", "nll", "rate", "norm") if name in row}
