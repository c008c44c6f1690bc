"""From an experiment to a trained run: prepare the data, build the model, train, validate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from headwise.blocks.stack import parameters
from headwise.config.experiment import Experiment, resolved
from headwise.data.prepare import Prepared
from headwise.embeddings import initialise
from headwise.errors import UserError
from headwise.loaded import task_of
from headwise.runs import Run
from headwise.tasks import task_class
from headwise.text.tokenisers import Tokenisers
from headwise.train import hardware
from headwise.train.counting import count
from headwise.train.loop import Result, train


def train_experiment(experiment: Experiment, folder: str | Path = "runs", **options: Any) -> tuple[Run, Result]:
    """Train an experiment in a new run folder `folder/name`. `announce` hears a line about data and model; further
    options are those of `headwise.train.loop.train`."""
    prepared = task_class(experiment.task.kind).prepare(experiment.data, experiment.tokeniser)
    run = Run.fresh(folder, experiment.name or "run", experiment.model_dump(mode="json"))
    prepared.tokenisers.save(run.tokenizer)
    return run, _train(run, experiment, prepared, **options)


def resume(path: str | Path, **options: Any) -> tuple[Run, Result]:
    """Go on with a run from its newest whole checkpoint."""
    run = Run.open(path)
    experiment = resolved(run.config, str(run.path / "config.toml"))
    if not run.tokenizer.exists():
        raise UserError(f"{run.tokenizer} is missing: the run ended before training began; train it anew")
    prepared = task_class(experiment.task.kind).prepare(experiment.data, Tokenisers.load(run.tokenizer))
    return run, _train(run, experiment, prepared, **options)


def silent(text: str) -> None:
    """Tell nobody."""


def _train(
    run: Run, experiment: Experiment, prepared: Prepared, announce: Callable[[str], None] = silent, **options: Any
) -> Result:
    hardware.prepare(experiment.train)  # before the first tensor: worker threads take its flags when they start
    torch.manual_seed(experiment.seed)
    config = experiment.train.for_width(getattr(experiment.model, "width", 0))
    task = task_of(experiment, prepared.tokenisers)
    model = task.build(experiment.model)
    if (vectors := getattr(experiment.model, "embeddings", "")) and not run.steps():
        initialise(model, prepared.tokenisers, vectors, announce)
    sides = dict.fromkeys((prepared.tokenisers.source, prepared.tokenisers.target))
    vocabulary = " + ".join(f"{side.size:,}" for side in sides)
    about = f"{len(prepared.valid):,} to validate; vocabulary {vocabulary}"

    def judge(current: Any) -> Mapping[str, float]:
        return task.validate(current, prepared.valid, prepared.valid_pairs)

    if not any(True for _ in model.parameters()):  # it counts, in one pass
        announce(f"{len(prepared.train):,} texts to learn from, {about}")
        return count(run, model, lambda: task.teach(model, prepared.train), judge, task.watch)
    data = task.data(prepared.train, experiment.seed, config)
    announce(f"{data.summary}; {about}; {parameters(model):,} parameters")
    return train(run, model, task, data, config, experiment.seed, validate=judge, watch=task.watch, **options)
