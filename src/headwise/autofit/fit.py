"""Auto-fit: recognise the data, choose an experiment, train it, evaluate it and write its model card."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from headwise.autofit.baselines import score_baselines
from headwise.autofit.frames import Frame, move_into_run, write_frame
from headwise.autofit.model_card import Fit, describe_verdict, write_model_card
from headwise.autofit.plan import Plan, find_task, plan
from headwise.autofit.recognise import recognise
from headwise.autofit.recognition import Recognition, describe_shape
from headwise.autofit.split import describe_split
from headwise.errors import UserError, nearest
from headwise.evaluate.bleu import check_language
from headwise.experiment.load import load
from headwise.experiment.run import ignore, train_experiment
from headwise.inference.trained_model import TrainedModel
from headwise.tasks.base import Evaluation
from headwise.tasks.tables import TASKS, task_config

Announce = Callable[[str], None]


def fit(
    data: str | Path | Frame,
    *files: str | Path,
    minutes: float = 10.0,
    task: str = "",
    columns: Sequence[str | int] = (),
    language: str = "en",
    from_: str | Path = "",
    name: str = "",
    runs: str | Path = "runs",
    announce: Announce = print,
) -> TrainedModel:
    """Train on the user's data within a time limit; return the trained model, as `headwise.load` does.

    `data` is a file or folder, a pandas or polars frame, a pyarrow table, a dict of columns, or dicts, one for each
    row; what it is for is recognised as by `headwise fit`. `files` are further files: an aligned one, or others of the
    same kind. The other arguments are the options of the command: `task` and `columns` (the texts, then the target)
    overrule what is recognised, `from_` is a run, a Hugging Face folder or a repository to start from. The run is
    `runs/name`; a frame is kept in its folder `data`. `announce` gets the lines that the command prints.

        model = headwise.fit(frame, minutes=10)
        model.classify(["a fine film"])
    """
    columns = [columns] if isinstance(columns, str) else columns
    options: dict[str, Any] = {"minutes": minutes, "task": task, "columns": columns, "language": language}
    options |= {"init_from": str(from_), "runs": runs, "announce": announce}
    if isinstance(data, str | Path):
        fitted = fit_files([data, *files], name=name, **options)
    elif files:
        raise UserError("fit: a frame has all columns, and no further files; pass the frame alone")
    else:
        fitted = fit_frame(data, name=name, **options)
    if fitted.result.interrupted:
        raise KeyboardInterrupt(f"stopped; to resume: headwise.resume({str(fitted.run.path)!r})")
    for line in summarise(fitted):
        announce(line)
    return load(fitted.run.path)


def fit_frame(frame: Frame, *, name: str = "", announce: Announce = ignore, **options: Any) -> Fit:
    """Fit the rows of a data frame, which become a file of the run."""
    with write_frame(frame, name or "frame") as path:
        return fit_files([path], name=name, announce=announce, keep=path, **options)


def prepare_fit(
    files: Sequence[str | Path],
    *,
    minutes: float = 10.0,
    name: str = "",
    task: str = "",
    columns: Sequence[str | int] = (),
    init_from: str = "",
    language: str = "en",
) -> tuple[Recognition, Plan]:
    """Recognise the data and choose an experiment."""
    check_language(language)  # not after the training
    if not files:
        raise UserError("name a file or folder to learn from, or two aligned files")
    if not (minutes > 0 and isfinite(minutes)):
        raise UserError(f"--minutes: {minutes:g} is no time to train; name more than 0 minutes")
    shape = find_shape(task) if task else ""
    recognition = recognise(files, columns, shape)
    name = name or Path(files[0]).expanduser().resolve().name.split(".")[0] or "fit"
    return recognition, plan(recognition, minutes, name, init_from, task)


def find_shape(task: str) -> str:
    """The shape of the data that a task learns from."""
    fitted = [kind for kind in TASKS.names if task_config(kind).fits]
    if task not in fitted:
        raise UserError(f"--task: `headwise fit` has no task '{task}'; {nearest(task, fitted)}")
    return task_config(task).fits


def fit_files(
    files: Sequence[str | Path],
    *,
    runs: str | Path = "runs",
    language: str = "en",
    announce: Announce = ignore,
    minutes: float = 10.0,
    name: str = "",
    task: str = "",
    columns: Sequence[str | int] = (),
    init_from: str = "",
    keep: Path | None = None,
    **options: Any,
) -> Fit:
    """Recognise, plan, train, evaluate; write the model card. The file `keep` is moved into the run."""
    recognition, chosen = prepare_fit(
        files, minutes=minutes, name=name, task=task, columns=columns, init_from=init_from, language=language
    )
    held_out = tuple(describe_split(chosen))  # now: a frame's file is moved after the training
    for line in describe(files, recognition, chosen, held_out):
        announce(line)
    run, result = train_experiment(chosen.experiment, runs, announce=announce, **options)
    if keep:
        move_into_run(run, keep)
    if result.interrupted:
        return Fit(run, result, recognition, chosen, held_out, Evaluation([], [], [], []), [])
    trained = load(run.path)
    announce("evaluating ...")
    evaluation = trained.evaluate(language=language)
    baselines = score_baselines(trained, evaluation)
    fitted = Fit(run, result, recognition, chosen, held_out, evaluation, baselines)
    write_model_card(fitted, trained)
    return fitted


def describe(
    files: Sequence[str | Path], recognition: Recognition, chosen: Plan, held_out: Sequence[str] = ()
) -> Iterator[str]:
    """Lines about what the data were taken for, what is held out, and what was chosen."""
    names = " and ".join(Path(file).name or str(file) for file in files)
    yield f"{names}: {describe_shape(recognition.shape)} ({recognition.reason})"
    statistics = chosen.statistics
    if recognition.columns:
        *texts, target = map(str, recognition.columns)
        yield f"columns: {' + '.join(texts)} -> {target}" if texts else f"column: {target}"
    if statistics is not None:
        if chosen.experiment.task.labelled and recognition.shape == "labelled":
            common = statistics.labels.most_common(8)
            shown = ", ".join(f"{label} {count:,}" for label, count in common)
            more = f" and {len(statistics.labels) - len(common)} more" if len(statistics.labels) > len(common) else ""
            yield f"labels: {shown}{more}"
        for source, target in statistics.examples:
            yield f"  {shorten(source)}  ->  {shorten(target)}" if source else f"  {shorten(target)}"
    yield from held_out or describe_split(chosen)
    for warning in (*recognition.warnings, *chosen.warnings):
        yield f"warning: {warning}"
    for reading in recognition.alternatives:
        quoted = " ".join(shlex.quote(str(file)) for file in files)
        columns = " ".join(shlex.quote(str(name)) for name in reading.names)
        yield (
            f"to read it as {describe_shape(reading.shape)} instead: headwise fit {quoted} "
            f"--task {find_task(reading.shape)} --columns {columns}"
        )
    yield from chosen.reasons


def shorten(text: str, limit: int = 60) -> str:
    """A text in one line of at most `limit` characters.

    >>> shorten("a long text", 6)
    'a lon…'
    """
    line = " ".join(text.replace("\t", " | ").split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def summarise(fitted: Fit) -> Iterator[str]:
    """Lines about scores, baselines, and commands to go on with."""
    for score in fitted.evaluation.scores:
        yield f"held-out {score}"
    for baseline in fitted.baselines:
        for score in baseline.scores[:1]:
            yield f"baseline, {baseline.name}: {score}"
    if verdict := describe_verdict(fitted.evaluation, fitted.baselines):
        yield verdict
