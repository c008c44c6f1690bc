"""The process of one cell: `python -m headwise.compare.worker [--with PARTS.py] [--trust]`.

It reads the cell from the first line of stdin and writes lines of JSON: progress and, on an error, `failed`. The
outcome is saved in the run folder. When stdin is closed, also by the death of the parent, it saves a checkpoint and
exits; if the parent is dead and that takes more than a minute, it is killed.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import nan
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwise.compare.cell import ITEMS, OUTCOME, Cell
from headwise.compare.values import Outcome
from headwise.config.plugins import take_options
from headwise.errors import UserError
from headwise.evaluate.score import Score
from headwise.train.progress import Row, format_row
from headwise.utils.files import write
from headwise.utils.parent import die_with_parent

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.runs import Run
    from headwise.train.state import Result

log = logging.getLogger(__name__)

GRACE = 60.0  # seconds for the last checkpoint after the parent's death

Send = Callable[[dict[str, Any]], None]


class ProgressReport:
    """Sends the progress of training as messages: at most one per second, and the scores of each validation."""

    def __init__(self, send: Send):
        self.send, self.text, self.next, self.share = send, "", 0.0, 0.0

    def __enter__(self) -> ProgressReport:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, share: float, step: int, epoch: int) -> None:
        self.share = share
        if monotonic() >= self.next:
            self.next = monotonic() + 1
            self.send({"share": share, "step": step, "text": self.text})

    def log(self, row: Row) -> None:
        self.text = format_row(row) or self.text
        if "valid" in row:
            self.send({"share": self.share, "step": row["step"], "text": self.text, "valid": dict(row["valid"])})


def run_cell(cell: Cell, send: Send) -> None:
    """Train or resume a cell, evaluate it and save the outcome; an interrupted run has no outcome."""
    from headwise.experiment.load import load
    from headwise.experiment.run import resume, train_experiment
    from headwise.train import hardware

    show, to_resume = ProgressReport(send), cell.run_to_resume()
    run, result = (
        resume(to_resume.path, show=show) if to_resume else train_experiment(cell.experiment, cell.folder, show=show)
    )
    if result.interrupted:
        return
    send({"share": 1.0, "step": result.step, "text": "evaluating"})
    trained = load(run.path, which=cell.checkpoint, device=hardware.choose_device(cell.experiment.train.device))
    columns: dict[str, Any] = {}
    if cell.curve:
        scores = read_curve(run, cell.curve, result.step, trained.task.checkpoint_metric.name)
    elif cell.evaluate is None:
        scores = [read_validation_score(result)]
    else:
        evaluation = trained.evaluate(**cell.evaluate)
        scores = evaluation.scores
        columns = {"sources": evaluation.sources, "outputs": evaluation.outputs, "references": evaluation.references}
    items = write(run.path / ITEMS, json.dumps(columns))
    parameters, flops = count_costs(trained)
    outcome = Outcome(
        scores={score.name: score for score in scores},
        parameters=parameters,
        flops_per_token=flops,
        tokens_per_second=median_speed(run),
        minutes=result.minutes,
        run=run.path,
        items=items,
        unit=name_unit(trained),
        steps=result.step,
        tokens=run.state.get("tokens"),
        validation=list_validations(run, trained.task.checkpoint_metric.name),
    )
    outcome.save(run.path / OUTCOME, cell.key)


def name_unit(trained: TrainedModel) -> str:
    """What FLOPs and speed are counted for."""
    if trained.experiment.task.reads == "environment":
        return "frame"
    return "image" if trained.task.image else "token"


def read_validation_score(result: Result) -> Score:
    """The best validation score of a training, without an interval."""
    if not result.best:
        raise UserError("training gave no finite validation score; add validation data, or lower train.schedule.lr")
    name, value = result.best["name"], result.best["value"]
    return Score(name, value, low=nan, high=nan)


def read_curve(run: Run, shares: Mapping[str, float], steps: int, metric: str) -> list[Score]:
    """Scores from the validation curve of a run: the metric at these shares of its steps, without intervals."""
    curve = {row["step"]: row["valid"][metric] for row in run.metrics.rows() if metric in (row.get("valid") or {})}
    scores = []
    for name, share in shares.items():
        step = round(share * steps)
        if step not in curve:
            raise UserError(f"curve: '{name}' is read at step {step:,}, which has no validation; set validate_every")
        scores.append(Score(name, curve[step], low=nan, high=nan))
    return scores


def list_validations(run: Run, metric: str) -> list[tuple[int, float]]:
    """The validation curve over target tokens."""
    tokens, curve = 0, []
    for row in run.metrics.rows():
        tokens = row.get("tokens") or tokens  # a validation follows a row of training at the same step
        if metric in (row.get("valid") or {}):
            curve.append((tokens, row["valid"][metric]))
    return curve


def median_speed(run: Run) -> float | None:
    """Tokens per second in training."""
    speeds = [row["tokens_per_second"] for row in run.metrics.rows() if row.get("tokens_per_second") is not None]
    return median(speeds) if speeds else None


def count_costs(trained: TrainedModel) -> tuple[int | None, int | None]:
    """Parameters, and forward FLOPs per token if `headwise.models.cost` can count them."""
    import torch

    from headwise.blocks.stack import count_parameters
    from headwise.models.cost import count_cost

    count = count_parameters(trained.model) or None  # models fitted without gradients have none
    if not count:
        return None, None
    try:
        with torch.device("meta"):
            model: Any = trained.task.build(trained.experiment.model)
        return count, count_cost(model, image=trained.task.image).flops_per_token
    except Exception as error:  # a model that cannot run on the meta device; its training must not be lost
        log.warning("FLOPs cannot be counted: %s", error)
        return count, None


def main(*options: str) -> None:
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output, also of C libraries, must not mix with the messages

    def send(message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the parent is dead; the last checkpoint is still to be saved
            print(json.dumps(message), file=reports, flush=True)

    die_with_parent(GRACE)
    line = sys.stdin.readline()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        take_options(options)  # before the cell is read, which may name the parts
        run_cell(Cell.model_validate_json(line), send)
    except UserError as error:
        send({"failed": str(error)})
    except Exception as error:
        send({"failed": f"{type(error).__name__}: {error}"})
        raise  # the log gets the traceback


def _leave_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)  # in training: save a checkpoint first


if __name__ == "__main__":
    main(*sys.argv[1:])
