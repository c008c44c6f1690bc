"""The process of one cell: `python -m headwise.compare.worker [PARTS.py ...]`.

It reads the cell from the first line of stdin and reports in lines of JSON: how far it is and, at last, `failed`. The
outcome itself it leaves in the run folder. When whoever started it lets go of stdin, dead or alive, it saves a
checkpoint and ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwise.compare.cell import ITEMS, OUTCOME, Cell
from headwise.compare.values import Outcome
from headwise.errors import UserError
from headwise.train.progress import Row, describe
from headwise.utils.files import write
from headwise.utils.plugins import add_parts

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.runs import Run

log = logging.getLogger(__name__)

Tell = Callable[[dict[str, Any]], None]


class Report:
    """A training's progress as messages, at most one a second."""

    def __init__(self, tell: Tell):
        self.tell, self.text, self.next = tell, "", 0.0

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, share: float, step: int, epoch: int) -> None:
        if monotonic() >= self.next:
            self.next = monotonic() + 1
            self.tell({"share": share, "step": step, "text": self.text})

    def log(self, row: Row) -> None:
        self.text = describe(row) or self.text


def work(cell: Cell, tell: Tell) -> None:
    """Train a cell, or go on with it, evaluate it and keep the outcome; a polite stop leaves none."""
    from headwise.inference.trained_model import load
    from headwise.train import hardware
    from headwise.train.experiment import resume, train_experiment

    show, begun = Report(tell), cell.begun()
    run, result = resume(begun.path, show=show) if begun else train_experiment(cell.experiment, cell.folder, show=show)
    if result.interrupted:
        return
    tell({"share": 1.0, "step": result.step, "text": "evaluating"})
    loaded = load(run.path, which=cell.checkpoint, device=hardware.choose_device(cell.experiment.train.device))
    found = loaded.evaluate(**cell.evaluate)
    columns = {"sources": found.sources, "outputs": found.outputs, "references": found.references}
    items = write(run.path / ITEMS, json.dumps(columns))
    parameters, flops = costs(loaded)
    outcome = Outcome(
        scores={score.name: score for score in found.scores},
        parameters=parameters,
        flops_per_token=flops,
        tokens_per_second=speed(run),
        minutes=result.minutes,
        run=run.path,
        items=items,
        unit="image" if loaded.task.image else "token",
    )
    outcome.save(run.path / OUTCOME, cell.key)


def speed(run: Run) -> float | None:
    """Tokens a second in training."""
    found = [row["tokens_per_second"] for row in run.metrics.rows() if row.get("tokens_per_second") is not None]
    return median(found) if found else None


def costs(loaded: TrainedModel) -> tuple[int | None, int | None]:
    """Parameters, and forward FLOPs a token where `headwise.models.cost` can count them."""
    import torch

    from headwise.blocks.stack import count_parameters
    from headwise.models.cost import cost

    count = count_parameters(loaded.model) or None  # what learns by counting has none
    if not count:
        return None, None
    try:
        with torch.device("meta"):
            model: Any = loaded.task.build(loaded.experiment.model)
        return count, cost(model, image=loaded.task.image).flops_per_token
    except Exception as error:  # a model that cannot run without contents; its training must not be lost for that
        log.warning("FLOPs cannot be counted: %s", error)
        return count, None


def main(*parts: str) -> None:
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed, by C libraries too, must not mix with the reports

    def tell(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=reports, flush=True)

    line = sys.stdin.readline()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        add_parts(parts)  # before the cell is read, which may name them
        work(Cell.model_validate_json(line), tell)
    except UserError as error:
        tell({"failed": str(error)})
    except Exception as error:
        tell({"failed": f"{type(error).__name__}: {error}"})
        raise  # the log gets the traceback


def _leave_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)  # in training: save a checkpoint first


if __name__ == "__main__":
    main(*sys.argv[1:])
