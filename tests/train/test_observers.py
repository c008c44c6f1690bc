"""Observers of training: the order of calls, errors in them, TensorBoard and MLflow."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch

import headwise
from headwise.config.plugins import use_parts
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.runs import Run
from headwise.train.config import TrainConfig
from headwise.train.loop import train
from headwise.train.observers import OBSERVERS, Observer, ObserverConfig

CONFIG = TrainConfig(
    threads=1, steps=24, log_every=4, validate_every=8, checkpoint_every=8, schedule={"kind": "constant", "lr": 0.01}
)


class Recorder(Observer):
    """Keeps every call: its name and what it is about."""

    def __init__(self):
        self.calls, self.rows = [], []

    def on_start(self, run, config, step):
        self.calls.append(("start", run.name, config, step))

    def on_metrics(self, row):
        self.rows.append(row)
        self.calls.append(("metrics", row["step"]))

    def on_validation(self, row):
        self.rows.append(row)
        self.calls.append(("validation", row["step"]))

    def on_checkpoint(self, path, step):
        self.calls.append(("checkpoint", path.name, (path / "manifest.json").is_file()))

    def on_end(self, result):
        self.calls.append(("end", result and result.reason))


class Killed(BaseException):
    """Ends a training as SIGKILL does, for the loop: no checkpoint is saved."""


class KillAt(Observer):
    def __init__(self, step):
        self.step = step

    def on_metrics(self, row):
        if row["step"] == self.step:
            raise Killed


@pytest.fixture
def fit(toy, tmp_path):
    def fit(config=CONFIG, **options):
        path = tmp_path / "run"
        run = Run.open(path) if path.exists() else Run.create(path, {"seed": 7, "model": {"kind": "toy", "width": 4}})
        torch.manual_seed(0)
        train(run, toy.Model(), toy.Task(), toy.Data(), config, seed=7, validate=toy.validate, **options)
        return run

    return fit


def test_calls_come_in_order_with_every_row(fit):
    recorder = Recorder()
    run = fit(observers=[recorder])
    assert recorder.calls[0] == ("start", "run", {"seed": 7, "model": {"kind": "toy", "width": 4}}, 0)
    assert recorder.calls[1:6] == [
        ("metrics", 4), ("metrics", 8), ("validation", 8), ("checkpoint", "step-8", True), ("metrics", 12),
    ]  # fmt: skip
    assert recorder.calls[-1] == ("end", "steps")
    assert json.loads(json.dumps(recorder.rows)) == run.metrics.rows()


def test_a_resumed_run_starts_at_its_checkpoint_and_a_failed_one_has_no_result(fit):
    first, second = Recorder(), Recorder()
    with pytest.raises(Killed):
        fit(observers=[first, KillAt(12)])
    fit(observers=[second])
    assert first.calls[-1] == ("end", None)
    assert second.calls[0][3] == 8 and second.calls[1] == ("metrics", 12)


def test_an_observer_that_raises_is_reported_once_and_training_goes_on(fit, caplog):
    class Broken(Observer):
        def on_metrics(self, row):
            raise RuntimeError("no disk\nmore lines")

    recorder = Recorder()
    with caplog.at_level(logging.WARNING):
        run = fit(observers=[Broken(), recorder])
    assert [record.getMessage() for record in caplog.records] == [
        "observer Broken: on_metrics failed (RuntimeError: no disk); training goes on, and further errors of it are "
        "not shown"
    ]
    assert recorder.calls[-1] == ("end", "steps") and run.steps()[-1] == 24


def test_metrics_that_cannot_be_written_stop_training(fit, tmp_path):
    """metrics.jsonl is a part of the run, so it is not guarded."""

    class BlockMetrics(Observer):
        def on_start(self, run, config, step):
            run.metrics.path.unlink(missing_ok=True)
            run.metrics.path.mkdir()

    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        fit(observers=[BlockMetrics()])


def test_tensorboard_gets_the_rows(fit):
    run = fit(CONFIG.replace(observers=["tensorboard"]))
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = (run.path / "tensorboard").iterdir()
    tags = {value.tag for event in EventFileLoader(str(file)).Load() for value in event.summary.value}
    assert {"train/loss", "train/rate", "valid/nll"} <= tags


def test_mlflow_gets_parameters_and_metrics_and_goes_on_after_a_kill(fit, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    config = CONFIG.replace(observers=[{"kind": "mlflow", "tracking_uri": store, "tags": ["team=a"]}])
    from mlflow.tracking import MlflowClient

    with pytest.raises(Killed):
        fit(config, observers=[KillAt(12)])
    client = MlflowClient(tracking_uri=store)
    run_id = json.loads((tmp_path / "run" / "mlflow.json").read_text())["run_id"]
    assert client.get_run(run_id).info.status == "FAILED"
    run = fit(config)
    (experiment,) = client.search_experiments(filter_string="name = 'headwise'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_id, found.info.run_name, found.info.status) == (run_id, "run", "FINISHED")
    assert found.data.params == {"seed": "7", "model.kind": "toy", "model.width": "4"}
    assert found.data.tags["team"] == "a" and found.data.tags["headwise.checkpoint"] == "step-24"
    for name, key in {"train/loss": "loss", "valid/nll": "nll"}.items():
        rows = [row.get("valid", row) | {"step": row["step"]} for row in run.metrics.rows()]
        rows = [row for row in rows if ("loss" in row) == (key == "loss")]
        history = sorted(client.get_metric_history(run_id, name), key=lambda point: point.step)
        assert [point.step for point in history] == [row["step"] for row in rows]  # none twice
        assert [point.value for point in history] == pytest.approx([row[key] for row in rows])


def test_observers_of_ones_own_join_the_table(tmp_path):
    recorder = Recorder()

    @OBSERVERS.add
    class RecorderConfig(ObserverConfig):
        kind: str = "recorder"

        def build(self):
            return recorder

    (tmp_path / "text.txt").write_text("to be or not to be\n" * 8)
    tables = {
        "task": "language-model",
        "data": {"train": str(tmp_path / "text.txt"), "format": "text", "cache": str(tmp_path / "cache")},
        "model": {"kind": "ngram", "order": 2},
        "train": {"epochs": 1, "observers": ["recorder"]},
    }
    try:
        headwise.train_experiment(parse_experiment(tables), tmp_path / "runs")
    finally:
        del OBSERVERS.loaded["recorder"]
    assert [call[0] for call in recorder.calls] == ["start", "validation", "checkpoint", "end"]


def test_an_unknown_observer_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="no observer is called 'wandb'; known: mlflow, tensorboard"):
        parse_experiment(
            {"data": {"train": "x"}, "model": "transformer-tiny", "train": {"steps": 1, "observers": ["wandb"]}}
        )


def test_mlflow_does_not_report_its_use():
    """In a process of its own: the client decides when it is imported, and reports nothing from tests and from CI."""
    code = (
        "import sys; from headwise.train.mlflow import MlflowConfig; MlflowConfig().build()\n"
        "from mlflow.telemetry import get_telemetry_client; sys.exit(get_telemetry_client() is not None)"
    )
    plain = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "HOME") if key in os.environ}
    for variables, status in (({}, 0), ({"MLFLOW_DISABLE_TELEMETRY": "false"}, 1)):
        # that of the user's own choice is respected; no address can be reached through this proxy
        environment = {**plain, **variables, "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr


def test_the_observer_of_the_documentation_works(fit, tmp_path, capsys):
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n# slow_steps\.py\n(.*?)```", page, flags=re.S)
    (tmp_path / "slow_steps.py").write_text(example)
    use_parts(tmp_path / "slow_steps.py")
    fit(CONFIG.replace(observers=[{"kind": "slow-steps", "least": 1e15}]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and all(re.fullmatch(r"step \d+: \d+ tokens a second", line) for line in lines)
    assert "--with slow_steps.py --set 'train.observers=[\"slow-steps\"]'" in page


def test_a_config_without_build_is_refused():
    class UnfinishedConfig(ObserverConfig):
        kind: Literal["unfinished"] = "unfinished"

    with pytest.raises(UserError, match="unfinished: UnfinishedConfig has no build method; write one that returns the"):
        UnfinishedConfig().build()
