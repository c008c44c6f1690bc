"""From an experiment to a trained run: prepare the data, build the model, train, validate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from headwise.blocks.admin import profile
from headwise.data.prepare import Prepared
from headwise.embeddings import initialise
from headwise.errors import UserError
from headwise.experiment.config import Experiment, parse_experiment
from headwise.experiment.load import load, load_vectors
from headwise.inference.trained_model import TrainedModel
from headwise.runs import Run
from headwise.runs.checkpoint import Checkpoint, check_finite, save, unique_tensors
from headwise.tasks.base import Task
from headwise.text.tokenisers import Tokenisers
from headwise.train import hardware
from headwise.train.fit_once import fit_once
from headwise.train.loop import Result, train
from headwise.tuning.config import folder_of
from headwise.tuning.freezing import lr_scales, size, tune
from headwise.tuning.init_from import init_from, prepare_for
from headwise.utils.extras import needed_for

Announce = Callable[[str], None]


def silent(text: str) -> None:
    """Tell nobody."""


def train_experiment(
    experiment: Experiment, folder: str | Path = "runs", announce: Announce = silent, **options: Any
) -> tuple[Run, Result]:
    """Train an experiment in a new run folder `folder/name`. `announce` hears lines about data and model; further
    options are those of `headwise.train.loop.train`."""
    hardware.prepare(experiment.train)  # before the first tensor: worker threads take its flags when they start
    if experiment.train.tensorboard:
        with needed_for("train.tensorboard"):  # before there is a folder
            import_module("torch.utils.tensorboard")
    prepared, model = _init_model(experiment, announce)
    lessons = _load_data(experiment, prepared, model)  # whatever is wrong with them is told before there is a folder
    first = Checkpoint({"step": 0}, unique_tensors(model))
    check_finite(first)
    run = Run.create_unique(folder, experiment.name or "run", experiment.model_dump(mode="json"))
    prepared.tokenisers.save(run.tokenizer)
    if experiment.init_from:  # whoever resumes needs the other model no more
        save(run, first)
    return run, _train(run, experiment, prepared, model, lessons, announce, **options)


def resume(path: str | Path, announce: Announce = silent, **options: Any) -> tuple[Run, Result]:
    """Go on with a run from its newest whole checkpoint."""
    run = Run.open(path)
    experiment = parse_experiment(run.config, str(run.path / "config.toml"))
    if not run.tokenizer.exists() or (experiment.init_from and not run.steps()):
        raise UserError(f"{run.path} ended before training began; train it anew")
    hardware.prepare(experiment.train)
    prepared = experiment.task.task_class.prepare(experiment.data, Tokenisers.load(run.tokenizer))
    model = _build_model(experiment, prepared.tokenisers, announce, first=not run.steps())
    tune(model, experiment.tuning)
    lessons = _load_data(experiment, prepared, model)
    return run, _train(run, experiment, prepared, model, lessons, announce, **options)


def _init_model(experiment: Experiment, announce: Announce) -> tuple[Prepared, Any]:
    """The data, and the model as it is before the first step."""
    if experiment.init_from:
        source = load_pretrained(experiment.init_from)
        prepared = prepare_for(experiment, source)
        model = _build_model(experiment, prepared.tokenisers, announce, first=False)
        found = init_from(model, experiment, source, prepared.tokenisers)
        tune(model, experiment.tuning)
        found.check(model)
        announce(str(found))
    else:
        prepared = experiment.task.task_class.prepare(experiment.data, experiment.tokeniser)
        model = _build_model(experiment, prepared.tokenisers, announce)
        tune(model, experiment.tuning)
    return prepared, model


def load_pretrained(init_from: str) -> TrainedModel:
    """The model that `init_from` names."""
    path, which = folder_of(init_from)
    if not path.is_dir():
        raise UserError(f"init_from: {path}: there is no such folder; name a run or a Hugging Face folder")
    return load(path, which=which)


def _build_model(experiment: Experiment, tokenisers: Tokenisers, announce: Announce, first: bool = True) -> Any:
    """The model with the weights of its seed; `first`: with the word vectors of a file, as no other weights follow."""
    torch.manual_seed(experiment.seed)
    model = experiment.create_task(tokenisers).build(experiment.model)
    if first and (vectors := getattr(experiment.model, "embeddings", "")):
        initialise(model, tokenisers, load_vectors(vectors), announce)
    return model


def _load_data(experiment: Experiment, prepared: Prepared, model: Any) -> tuple[Task[Any], Any]:
    """The task, and its batches; none for a model without parameters, which counts in one pass."""
    task = experiment.create_task(prepared.tokenisers)
    if task.teacher_run:
        load_teacher(task)
    learns = any(True for _ in model.parameters())
    return task, task.data(prepared.train, experiment.seed, experiment.train) if learns else None


def load_teacher(task: Task[Any]) -> None:
    """Give a task the trained model that it learns from; one that does not fit is refused before a run is begun."""
    path, which = folder_of(task.teacher_run)
    try:
        loaded = load(path, which=which)
        teacher = loaded.check_task(task.kind)
    except UserError as error:
        raise UserError(f"task.teacher: {error}") from None
    task.set_teacher(teacher, loaded.model)


def _train(
    run: Run,
    experiment: Experiment,
    prepared: Prepared,
    model: Any,
    lessons: tuple[Task[Any], Any],
    announce: Announce,
    **options: Any,
) -> Result:
    config = experiment.train.for_width(getattr(experiment.model, "width", 0))
    task, data = lessons
    about = f"{len(prepared.valid):,} to validate; {task.units}"

    def judge(current: Any) -> Mapping[str, float]:
        return task.validate(current, prepared.valid, prepared.valid_pairs)

    def show(current: Any) -> list[dict[str, str]]:
        try:
            return [each.to_dict() for each in task.samples(current, prepared.valid_pairs, config.samples)]
        except UserError:  # an n-gram model without label_smoothing may know no way to go on: no reason to end
            return []

    if data is None:
        announce(f"{len(prepared.train):,} texts to learn from, {about}")
        return fit_once(run, model, lambda: task.fit_model(model, prepared.train), judge, show, task.checkpoint_metric)
    announce(f"{data.summary}; {about}; {size(model)}")
    if not run.steps():
        profile(
            model, lambda: [task.loss(model, data.batch(first), task.init_state(model)) for first in data.plan(0)[:1]]
        )
    options |= {"validate": judge, "samples": show if config.samples else None, "watch": task.checkpoint_metric}
    scales = lr_scales(model, experiment.model.lr_scales(), experiment.tuning.layer_lr_decay)
    return train(run, model, task, data, config, experiment.seed, lr_scales=scales, **options)
