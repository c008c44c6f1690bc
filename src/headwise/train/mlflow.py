"""MLflow tracking of a run: parameters, metrics by step, tags and status.

The MLflow run id is kept in `mlflow.json` of the run folder, so that a resumed run goes on in the same MLflow run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from headwise.runs import Run
from headwise.train.observers import Observer, ObserverConfig, Row, select_scalars
from headwise.utils.extras import needed_for
from headwise.utils.files import read_json, write

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

    from headwise.train.state import Result

NO_TELEMETRY = "MLFLOW_DISABLE_TELEMETRY"  # else the client reports its use to MLflow's authors
RUN_FILE = "mlflow.json"
BATCH = 100  # parameters at most in one request
MAX_VALUE = 6000  # characters at most of a parameter's value
INVALID = re.compile(r"[^\w\-./: ]")  # characters that no name in MLflow may have


class Mlflow(Observer):
    """Logs to one MLflow run, with its client: MLflow's active run and global settings stay as they are."""

    client: MlflowClient
    run_id: str

    def __init__(self, config: MlflowConfig):
        self.config = config
        self.logged: dict[str, int] = {}  # the last step of each metric

    def on_start(self, run: Run, config: Mapping[str, Any], step: int) -> None:
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient(tracking_uri=self.config.tracking_uri or None)
        if run_id := read_run_id(run.path / RUN_FILE):
            self.run_id = run_id
            self._continue_run()
        else:
            self._create_run(run, config)

    def _create_run(self, run: Run, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        name = self.config.experiment
        experiment = self.client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment(name)
        tags = {f"headwise.version.{package}": str(value) for package, value in run.info.get("versions", {}).items()}
        tags |= {"headwise.run": str(run.path.absolute()), **dict(tag.split("=", 1) for tag in self.config.tags)}
        self.run_id = self.client.create_run(experiment_id, run_name=run.name, tags=tags).info.run_id
        write(run.path / RUN_FILE, json.dumps({"run_id": self.run_id, "experiment": name}, indent=1))
        params = [Param(INVALID.sub("_", key), text[:MAX_VALUE]) for key, text in flatten(config)]
        for start in range(0, len(params), BATCH):
            self.client.log_batch(self.run_id, params=params[start : start + BATCH])

    def _continue_run(self) -> None:
        """Resume the MLflow run: what a killed process logged after its last checkpoint is not logged twice."""
        self.client.update_run(self.run_id, status="RUNNING")
        for name in self.client.get_run(self.run_id).data.metrics:
            self.logged[name] = max(point.step for point in self.client.get_metric_history(self.run_id, name))

    def on_metrics(self, row: Row) -> None:
        from mlflow.entities import Metric

        step, now = row["step"], int(time() * 1000)
        scalars = {INVALID.sub("_", name): float(value) for name, value in select_scalars(row).items()}
        new = {name: value for name, value in scalars.items() if step > self.logged.get(name, -1)}
        if new:
            self.client.log_batch(self.run_id, metrics=[Metric(name, value, now, step) for name, value in new.items()])

    def on_validation(self, row: Row) -> None:
        self.on_metrics(row)

    def on_checkpoint(self, path: Path, step: int) -> None:
        self.client.set_tag(self.run_id, "headwise.checkpoint", path.name)

    def on_end(self, result: Result | None) -> None:
        if result is not None and result.best:
            self.client.set_tag(self.run_id, "headwise.best", f"{result.best['name']} {result.best['value']:.6g}")
        status = "FAILED" if result is None else "KILLED" if result.interrupted else "FINISHED"
        self.client.set_terminated(self.run_id, status)


class MlflowConfig(ObserverConfig):
    """MLflow, by default in the store that MLflow itself uses."""

    kind: Literal["mlflow"] = "mlflow"
    experiment: str = "headwise"  # of MLflow: the group of runs
    tracking_uri: str = ""  # such as sqlite:///mlflow.db; empty: MLFLOW_TRACKING_URI, or mlflow.db in this folder
    tags: tuple[Annotated[str, Field(pattern=r"^[^=]+=")], ...] = ()  # such as "team=speech"

    def build(self) -> Observer:
        os.environ.setdefault(NO_TELEMETRY, "true")  # read when mlflow is imported
        with needed_for("train.observers"):
            for package in ("mlflow.tracking", "sqlalchemy", "alembic"):  # the local store needs the latter two
                import_module(package)
        return Mlflow(self)


def read_run_id(path: Path) -> str:
    """The MLflow run that a run folder names; empty if there is none."""
    try:
        data = read_json(path)
    except FileNotFoundError:
        return ""
    return str(data["run_id"])


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The values of nested tables by their paths.

    >>> list(flatten({"seed": 1, "train": {"schedule": {"lr": 0.001}}}))
    [('seed', '1'), ('train.schedule.lr', '0.001')]
    """
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)
