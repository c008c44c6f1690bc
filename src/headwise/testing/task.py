"""Check a task by a training of some steps on made-up data: it learns, validates, scores and can be loaded."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headwise.experiment.config import parse_experiment
from headwise.experiment.load import load
from headwise.experiment.run import train_experiment
from headwise.tasks.base import Task, TaskConfig
from headwise.testing.verdicts import Verdict, find_violation
from headwise.train.progress import Row

MODELS = {  # by what a task needs of its model
    "transduce": "transformer-tiny",
    "language-model": "gpt2-tiny",
    "masked": "bert-tiny",
    "tag": "bert-tiny",
    "classify": "bert-tiny",
}
WORDS = ("red", "blue", "green", "small", "large", "round")
STEPS = 40


class NoProgress:
    """Shows nothing of a training."""

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, share: float, step: int, epoch: int) -> None: ...

    def log(self, row: Row) -> None: ...


def judge_task(config: TaskConfig) -> Iterator[Verdict]:
    """Verdicts on a task: its declaration, a short training, its scores, and the run that it leaves."""
    kind = config.kind
    problem = find_violation(lambda: check_declaration(config), catch=True)
    yield Verdict(kind, "declaration", problem)
    if problem:
        return
    if config.reads != "texts" or config.model_task not in MODELS:
        yield Verdict(kind, "training", "", f"not checked: no made-up data for {config.reads}, {config.model_task}")
        return
    with TemporaryDirectory() as folder:
        trained: list[Any] = []

        def train() -> None:
            experiment = build_experiment(config, Path(folder))
            trained.append(train_experiment(experiment, Path(folder) / "runs", show=NoProgress())[0])
            losses = [row["loss"] for row in trained[0].metrics.rows() if row.get("loss") is not None]
            assert losses and all(map(math.isfinite, losses)), "the loss is not finite"
            assert losses[-1] < losses[0], f"the loss does not fall: {losses[0]:.3g} at first, {losses[-1]:.3g} at last"

        problem = find_violation(train, catch=True)
        yield Verdict(kind, "training", problem, f"the loss falls in {STEPS} steps")
        if problem:
            return
        run = trained[0]

        def validate() -> None:
            assert run.state.get("best"), "validate does not return the score that checkpoint_metric names"

        def evaluate() -> None:
            evaluation = load(run.path).evaluate()
            assert evaluation.scores, "evaluate returns no scores"
            assert all(math.isfinite(score.value) for score in evaluation.scores), "a score is not finite"

        yield Verdict(kind, "validation", find_violation(validate, catch=True), "the best checkpoint is chosen")
        yield Verdict(kind, "load and evaluate", find_violation(evaluate, catch=True), "the run has scores")


def check_declaration(config: TaskConfig) -> None:
    """The class attributes by which everything else finds the task."""
    task_class = getattr(config, "task_class", None)
    assert isinstance(task_class, type) and issubclass(task_class, Task), "task_class is not a subclass of Task"
    lacking = sorted(getattr(task_class, "__abstractmethods__", ()))
    assert not lacking, f"{task_class.__name__} does not define {', '.join(lacking)}"


def build_experiment(config: TaskConfig, folder: Path) -> Any:
    """A small experiment with made-up texts of the form that the task reads."""
    draw, rows = random.Random(0), []
    for _ in range(200):
        words = draw.choices(WORDS, k=draw.randint(2, 5))
        targets = [word.upper() for word in words] if config.one_to_one else words[::-1]
        target = words[0] if config.labelled and not config.one_to_one else " ".join(targets)
        rows.append(" ".join(words) if config.unpaired else f"{' '.join(words)}\t{target}")
    file = folder / "texts"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    data = {"train": str(file), "format": "lines" if config.unpaired else "tsv", "cache": str(folder / "cache")}
    schedule = {"kind": "cosine", "lr": 0.003, "warmup": 5}
    train = {"steps": STEPS, "batch_size": 32, "threads": 1, "log_every": 10, "schedule": schedule}
    tables = {"task": config.model_dump(mode="json"), "data": data, "tokeniser": "words"}
    return parse_experiment({**tables, "model": {"kind": MODELS[config.model_task], "dropout": 0.0}, "train": train})
