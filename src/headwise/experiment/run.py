"""Train an experiment: prepare the data, build the model, run the training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.blocks.admin import profile
from headwise.config.plugins import collect_parts
from headwise.data.cache import resolve_cache_root
from headwise.data.digests import record_files
from headwise.data.locate import check_files, check_unchanged, locate_data, relative_to_base
from headwise.data.prepare import Prepared
from headwise.embeddings import initialise
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.experiment.convert import from_hf
from headwise.experiment.extend import Extension, extend_budget
from headwise.experiment.group import connect, describe_launch, find_launched_run, open_shared
from headwise.experiment.load import load, load_vectors, read_experiment
from headwise.inference.trained_model import TrainedModel
from headwise.interop.hf.hub import is_repository
from headwise.models.build import check_memory
from headwise.models.cost import count_cost
from headwise.models.summary import TRAINING_PASSES
from headwise.runs import Run
from headwise.runs.checkpoint import Checkpoint, check_finite, save, unique_tensors
from headwise.runs.data_record import read_record, write_record
from headwise.tasks.base import AnyModelTask, TrainingData
from headwise.text.tokenisers import Tokenisers
from headwise.train.fit_once import fit_once
from headwise.train.loop import Result, train
from headwise.train.parallel.group import Group, join
from headwise.train.state import Metric
from headwise.tuning.config import parse_run_reference
from headwise.tuning.freezing import apply_tuning, compute_lr_scales, describe_size
from headwise.tuning.init_from import init_from, prepare_data

Announce = Callable[[str], None]


def ignore(text: str) -> None:
    """Drop an announcement."""


def train_experiment(
    experiment: Experiment, folder: str | Path = "runs", announce: Announce = ignore, **options: Any
) -> tuple[Run, Result]:
    """Train an experiment in a new run folder `folder/name`. `announce` gets lines about data and model; further
    options are those of `headwise.train.loop.train`. Under torchrun all processes call this, and train one model."""
    with join() as group:
        connect(group, experiment)
        if not group.is_main:
            return _resume(open_shared(group), ignore, group, **options)
        if path := find_launched_run(folder):
            return _resume(Run.open(path), announce, group, **options)
        return _begin(experiment, folder, announce, group, **options)


def _begin(
    experiment: Experiment, folder: str | Path, announce: Announce, group: Group, **options: Any
) -> tuple[Run, Result]:
    """Train a new run."""
    for observer in experiment.train.observers:
        observer.build()  # a package that is not installed is an error before there is a folder
    prepared, model, origin = _init_model(experiment, announce)
    task, data = _build_data(experiment, prepared, model)  # errors in the data come before there is a folder
    if data is None and group.size > 1:
        raise UserError(f"the model '{experiment.model.kind}' is fitted by one process; leave out --processes")
    first = Checkpoint({"step": 0}, unique_tensors(model))
    check_finite(first)
    files = record_files(prepared.files, resolve_cache_root(experiment.data.cache))
    sized = experiment.replace(model=task.set_sizes(experiment.model))
    config, parts = sized.model_dump(mode="json"), collect_parts(experiment)
    info = {**({"init_from": dict(origin)} if origin else {}), **describe_launch(group)}
    run = Run.create_unique(folder, experiment.name or "run", config, parts, info)
    write_record(run, Path(), files)
    prepared.tokenisers.save(run.tokenizer)
    run.seal()
    if experiment.init_from:  # a resumed run does not need the pretrained model again
        save(run, first)
    return run, _train(run, experiment, prepared, model, task, data, announce, group, **options)


def resume(
    path: str | Path,
    announce: Announce = ignore,
    *,
    steps: int = 0,
    epochs: int = 0,
    minutes: float = 0.0,
    data_root: str | Path = "",
    changed_data: bool = False,
    trust: bool = False,
    **options: Any,
) -> tuple[Run, Result]:
    """Resume a run from its newest complete checkpoint; with `steps`, `epochs` or `minutes`, train it so much longer.

    `data_root` is the folder that has the data, where they are neither beside the run nor where they were. Data that
    have changed since the run began are refused, unless `changed_data` is set. With `trust`, the code of parts that the
    run keeps is executed.
    """
    run, extension = Run.open(path), Extension(steps, epochs, minutes)
    experiment = read_experiment(run, trust)
    with join() as group:
        budgets = {"--steps": steps, "--epochs": epochs, "--minutes": minutes}
        connect(group, experiment, **budgets)
        if not group.is_main:  # the main process has extended the budget and recorded the data before
            return _resume(open_shared(group), ignore, group, data_root=data_root, trust=trust, **options)
        return _resume(run, announce, group, extension, data_root, changed_data, trust, **options)


def _resume(
    run: Run,
    announce: Announce,
    group: Group,
    extension: Extension = Extension(),  # noqa: B008  (a frozen value)
    data_root: str | Path = "",
    changed_data: bool = False,
    trust: bool = False,
    **options: Any,
) -> tuple[Run, Result]:
    """Resume a run; also what all but the main process do with a run that the main process has begun."""
    experiment = read_experiment(run, trust)
    if not run.tokenizer.exists() or (experiment.init_from and not run.steps()):
        raise UserError(f"{run.path} ended before training began; train it anew")
    record = read_record(run)
    location = locate_data(experiment.data, run.path, record, data_root)
    if not changed_data:  # before anything is prepared
        check_unchanged(location, record)
    prepared = experiment.task.task_class.prepare(location.data, Tokenisers.load(run.tokenizer))
    if not changed_data:
        check_files(location, record, prepared.files)
    model = _build_model(experiment, prepared.tokenisers, announce, first=not run.steps())
    apply_tuning(model, experiment.tuning)
    folders = [Path(record.folder), run.path / record.from_run] if record.folder or record.from_run else []
    task, data = _build_data(experiment, prepared, model, folders)
    if extension:
        if data is None:
            raise UserError(f"{run.path}: its model is fitted in one pass and cannot be trained longer; fit a new one")
        experiment, line = extend_budget(run, experiment, extension)
        announce(line)
        with run.lock():
            run.write_config(experiment.model_dump(mode="json"))
    if changed_data:
        files = record_files(prepared.files, resolve_cache_root(location.data.cache))
        with run.lock():
            write_record(run, location.base, relative_to_base(location, files))
    return run, _train(run, experiment, prepared, model, task, data, announce, group, **options)


def _init_model(experiment: Experiment, announce: Announce) -> tuple[Prepared, nn.Module, Mapping[str, str]]:
    """The data, the model before the first step, and the repository of its pretrained weights, if any."""
    origin: Mapping[str, str] = {}
    if experiment.init_from:
        source = load_pretrained(experiment.init_from)
        origin = source.origin
        prepared = prepare_data(experiment, source)
        model = _build_model(experiment, prepared.tokenisers, announce, first=False)
        transfer = init_from(model, experiment, source, prepared.tokenisers)
        apply_tuning(model, experiment.tuning)
        transfer.check(model)
        announce(str(transfer))
    else:
        prepared = experiment.task.task_class.prepare(experiment.data, experiment.tokeniser)
        model = _build_model(experiment, prepared.tokenisers, announce)
        apply_tuning(model, experiment.tuning)
    return prepared, model, origin


def find_checkpoint_metric(experiment: Experiment) -> Metric:
    """The validation score that selects the best checkpoint of an experiment; prepares its data."""
    if experiment.init_from:
        tokenisers = prepare_data(experiment, load_pretrained(experiment.init_from)).tokenisers
    else:
        tokenisers = experiment.task.task_class.prepare(experiment.data, experiment.tokeniser).tokenisers
    return experiment.create_task(tokenisers).checkpoint_metric


def load_pretrained(init_from: str) -> TrainedModel:
    """The model that `init_from` names."""
    path, which = parse_run_reference(init_from)
    if is_repository(path):
        return from_hf(path, "" if which == "best" else which)
    if not path.is_dir():
        raise UserError(f"init_from: {path}: there is no such folder; name a run or a Hugging Face folder")
    return load(path, which=which)


def _build_model(experiment: Experiment, tokenisers: Tokenisers, announce: Announce, first: bool = True) -> nn.Module:
    """The model, initialised with its seed; if no other weights follow (`first`), also with given word vectors."""
    task = experiment.create_task(tokenisers)
    # weights and gradients; the states of optimisers differ
    check_memory(lambda: task.build(experiment.model), experiment.model.model_dump(), copies=2)
    torch.manual_seed(experiment.seed)
    model: nn.Module = task.build(experiment.model)
    if first and (vectors := getattr(experiment.model, "embeddings", "")):
        initialise(model, tokenisers, load_vectors(vectors), announce)
    return model


def _build_data(
    experiment: Experiment, prepared: Prepared, model: nn.Module, folders: Sequence[Path] = ()
) -> tuple[AnyModelTask, TrainingData | None]:
    """The task and its batches; None for a model without parameters, which is fitted in one pass. `folders` are those
    in which a teacher may be, besides the current one."""
    task = experiment.create_task(prepared.tokenisers)
    if task.teacher_run:
        load_teacher(task, folders)
    has_parameters = any(True for _ in model.parameters())
    return task, task.build_batches(prepared.train, experiment.seed, experiment.train) if has_parameters else None


def load_teacher(task: AnyModelTask, folders: Sequence[Path] = ()) -> None:
    """Load the teacher of knowledge distillation; one that does not fit is refused before there is a run."""
    path, which = parse_run_reference(task.teacher_run)
    if not path.is_dir():
        path = next((folder / path for folder in folders if (folder / path).is_dir()), path)
    try:
        loaded = load(path, which=which)
        teacher = loaded.check_task(task.kind)
    except UserError as error:
        raise UserError(f"task.teacher: {error}") from None
    task.set_teacher(teacher, loaded.model)


def count_training_flops(experiment: Experiment, task: AnyModelTask) -> int:
    """FLOPs of training on a token, for a budget of FLOPs; 0 if there is none."""
    if not experiment.train.flops:
        return 0
    try:
        with torch.device("meta"):
            model: nn.Module = task.build(experiment.model)
        per_token = TRAINING_PASSES * count_cost(model, image=task.image).flops_per_token
    except UserError:
        raise
    except Exception as error:  # a model that cannot run on the meta device
        raise UserError(
            f"train.flops: the FLOPs of '{experiment.model.kind}' cannot be counted ({error}); use train.tokens"
        ) from None
    if not per_token:
        raise UserError(f"train.flops: '{experiment.model.kind}' has no FLOPs to count; use train.tokens")
    return per_token


def _train(
    run: Run,
    experiment: Experiment,
    prepared: Prepared,
    model: nn.Module,
    task: AnyModelTask,
    data: TrainingData | None,
    announce: Announce,
    group: Group,
    **options: Any,
) -> Result:
    if group.is_main:
        group.broadcast(str(run.path.resolve()))
    config = experiment.train.for_width(getattr(experiment.model, "width", 0))
    summary = f"{len(prepared.valid):,} to validate; {task.units}"

    def validate(current: nn.Module) -> Mapping[str, float]:
        return task.validate(current, prepared.valid, prepared.valid_pairs)

    def draw_samples(current: nn.Module) -> list[dict[str, str]]:
        try:
            return [sample.to_dict() for sample in task.draw_samples(current, prepared.valid_pairs, config.samples)]
        except UserError:  # an n-gram model without smoothing may have no continuation; training goes on
            return []

    if data is None:
        announce(f"{len(prepared.train):,} texts to learn from, {summary}")
        observers = [*(item.build() for item in config.observers), *options.get("observers", ())]
        return fit_once(
            run,
            model,
            lambda: task.fit_model(model, prepared.train),
            validate,
            draw_samples,
            task.checkpoint_metric,
            observers,
        )
    announce(f"{data.summary}; {summary}; {describe_size(model)}")
    if not run.steps():
        profile(
            model, lambda: [task.loss(model, data.batch(first), task.init_state(model)) for first in data.plan(0)[:1]]
        )
    samples = draw_samples if config.samples else None
    options |= {"validate": validate, "samples": samples, "watch": task.checkpoint_metric}
    scales = compute_lr_scales(model, experiment.model.lr_scales(), experiment.tuning.layer_lr_decay)
    scales |= task.lr_scales
    options["flops_per_token"] = count_training_flops(experiment, task)
    options |= {"learner_class": task.learner_class, "group": group}
    return train(run, model, task, data, config, experiment.seed, lr_scales=scales, **options)
