"""From an experiment to a trained run: prepare the data, build the model, train, validate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from headwise.blocks.stack import parameters
from headwise.config.experiment import Experiment, resolved
from headwise.data.prepare import Prepared, prepare
from headwise.errors import UserError
from headwise.loaded import build_for
from headwise.runs import Run
from headwise.tasks.transduce import PairData, Transduce
from headwise.text.tokenisers import Tokenisers
from headwise.train import hardware
from headwise.train.loop import Result, train


def train_experiment(experiment: Experiment, folder: str | Path = "runs", **options: Any) -> tuple[Run, Result]:
    """Train an experiment in a new run folder `folder/name`. `announce` hears a line about data and model; further
    options are those of `headwise.train.loop.train`."""
    prepared = prepare(experiment.data, experiment.tokeniser)
    run = Run.fresh(folder, experiment.name or "run", experiment.model_dump(mode="json"))
    prepared.tokenisers.save(run.tokenizer)
    return run, _train(run, experiment, prepared, **options)


def resume(path: str | Path, **options: Any) -> tuple[Run, Result]:
    """Go on with a run from its newest whole checkpoint."""
    run = Run.open(path)
    experiment = resolved(run.config, str(run.path / "config.toml"))
    if not run.tokenizer.exists():
        raise UserError(f"{run.tokenizer} is missing: the run ended before training began; train it anew")
    prepared = prepare(experiment.data, Tokenisers.load(run.tokenizer))
    return run, _train(run, experiment, prepared, **options)


def silent(text: str) -> None:
    """Tell nobody."""


def _train(
    run: Run, experiment: Experiment, prepared: Prepared, announce: Callable[[str], None] = silent, **options: Any
) -> Result:
    hardware.prepare(experiment.train)  # before the first tensor: worker threads take its flags when they start
    torch.manual_seed(experiment.seed)
    model = build_for(experiment, prepared.tokenisers)
    config = experiment.train.for_width(experiment.model.width)
    task = Transduce(experiment.task, prepared.tokenisers, config.smoothing)
    data = PairData(prepared.train, experiment.seed, config.tokens_per_batch, config.batch_size)
    sizes = " + ".join(
        f"{side.size:,}" for side in dict.fromkeys((prepared.tokenisers.source, prepared.tokenisers.target))
    )
    announce(
        f"{len(prepared.train):,} pairs to train on, {len(prepared.valid):,} to validate; vocabulary {sizes}; "
        f"{len(data.batches):,} batches an epoch, {100 * data.batches.padding:.1f} % padding; "
        f"{parameters(model):,} parameters"
    )
    return train(
        run,
        model,
        task,
        data,
        config,
        experiment.seed,
        validate=lambda current: task.validate(current, prepared.valid, prepared.valid_pairs),
        watch=task.watch,
        **options,
    )
