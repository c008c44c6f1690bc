"""`headwise evaluate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headwise.cli.common import Beams, Checkpoint, Device, Ensemble, Json, LengthPenalty, Threads, With, opened, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.data.read import Pair
    from headwise.inference.trained_model import TrainedModel
    from headwise.tasks.base import Evaluation

FORMATS = {".conllu": "conllu", ".zip": "labelled-zip"}  # by ending; other files are TSV, or text for language models


def evaluate(
    run: Path,
    *,
    data: Annotated[
        list[str] | None,
        Parameter(negative="", help="Your own pairs: a TSV, two aligned files, .conllu, .zip; a text; images."),
    ] = None,
    and_: Ensemble = None,
    beams: Beams = None,
    length_penalty: LengthPenalty = None,
    language: Annotated[str, Parameter(help="Of the outputs, for tokenised BLEU.")] = "en",
    outputs: Annotated[Path | None, Parameter(help="Write source, output and references to this TSV.")] = None,
    confusion: Annotated[
        Path | None, Parameter(help="Draw which label was taken for which to this .svg or .png.")
    ] = None,
    by_length: Annotated[
        Path | None, Parameter(help="Draw the score over the source's length to this .svg or .png.")
    ] = None,
    show: Annotated[int, Parameter(help="Print this many examples.")] = 0,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Score a run, with 95 % intervals (bootstrap over the items).

    Transduction is scored by BLEU or error rates, language models by perplexity, tags and labels by accuracy and F1.
    Without --data it takes the experiment's test part, or its validation part where there is no test part.

    For example:

        headwise evaluate runs/demo
        headwise evaluate runs/multi30k --beams 5 --language de --json
        headwise evaluate runs/mine --data held_out.tsv --show 10
        headwise evaluate runs/multi30k --by-length lengths.svg
        headwise evaluate runs/ewt-lstm --confusion tags.svg
        headwise evaluate runs/shakespeare-lstm --data sonnets.txt
        headwise evaluate vit-base-patch16-224 --data photos/
    """
    loaded = opened([run, *(and_ or ())], checkpoint, device, threads, with_)
    _check(loaded, outputs, show, confusion, by_length)
    settings: dict[str, Any] = {
        key: value for key, value in (("beams", beams), ("length_penalty", length_penalty)) if value is not None
    }
    pairs: Sequence[Pair] = ()
    if data and loaded.experiment.task.reads == "images":
        loaded = _seeing(loaded, data)
    elif data:
        pairs = _read(tuple(Path(file) for file in data), loaded)
    found = loaded.evaluate(pairs, language=language, **settings)
    rows = list(zip(found.sources, found.outputs, found.references, strict=True))
    if outputs:
        from headwise.utils.files import write

        write(outputs, "".join("\t".join([source, output, *listed]) + "\n" for source, output, listed in rows))
        say(f"outputs are in {outputs}")
    if confusion:
        say(f"the confusion picture is in {_draw(found, confusion, run.name)}")
    if by_length:
        say(f"the score over lengths is in {_draw_lengths(found, loaded, by_length, run.name)}")
    if json_:
        print(json.dumps({"run": str(run)} | _report(found, loaded, settings), indent=1))
        return
    for source, output, listed in rows[:show]:
        print(f"{source}\n  {output}\n  {'  |  '.join(listed)}")
    for score in found.scores:
        print(score)


def _check(
    loaded: TrainedModel, outputs: Path | None, show: int, confusion: Path | None, by_length: Path | None
) -> None:
    """Refuse what this run cannot give, before it is evaluated."""
    task, kind = loaded.experiment.task, loaded.task.kind
    if (outputs or show) and task.unpaired:
        raise UserError(f"--outputs and --show: {kind} is scored without writing; use `headwise {task.command}`")
    if by_length and not task.transduces:
        raise UserError(f"--by-length: this run was trained to {kind}; only outputs of sources have their lengths")
    if confusion:
        from headwise.inspect.files import check_ending

        if not task.confusion:
            from headwise.tasks.tables import TASKS, task_config

            known = " or ".join(name for name in TASKS.names if task_config(name).confusion)
            raise UserError(f"--confusion: this run was trained to {kind}; name one that was trained to {known}")
        check_ending(confusion, ".svg", ".png")


def _seeing(loaded: TrainedModel, data: Sequence[str]) -> TrainedModel:
    """The same with other images: the test part of a named set, or all of a folder."""
    from headwise.config.base import validate
    from headwise.vision.config import ImagesConfig

    if len(data) > 1:
        raise UserError("--data: give one set of images by name, or one folder with a folder for each class")
    parts = dict.fromkeys(("train", "valid", "test"), data[0])  # so that nothing of a folder is held out
    images = validate(ImagesConfig, parts if Path(data[0]).exists() else {"name": data[0]}, "--data")
    return replace(loaded, experiment=loaded.experiment.replace(data=images))


def _read(files: tuple[Path, ...], loaded: TrainedModel) -> Sequence[Pair]:
    from headwise.data.config import UNPAIRED, TextDataConfig
    from headwise.data.read import read_pairs

    data, task = loaded.experiment.data, loaded.experiment.task
    assert isinstance(data, TextDataConfig)
    if len(files) > 2:
        raise UserError("--data: give one file, or two that are aligned line by line")
    other = "tsv"
    if task.unpaired:
        other = data.format if data.format in UNPAIRED else "text"
    first = files[0]
    format = FORMATS.get((first.with_suffix("") if first.suffix == ".gz" else first).suffix, other)
    return list(read_pairs(files, format, data.column, one_to_one=task.one_to_one, columns=data.columns))


def _report(found: Evaluation, loaded: TrainedModel, settings: dict[str, Any]) -> dict[str, Any]:
    """What --json prints: scores, and what else the task has."""
    report: dict[str, Any] = {"task": loaded.task.kind, "scores": [score.to_json() for score in found.scores]}
    if found.sources:
        report["items"] = len(found.sources)
    if found.confusion is not None:
        report["confusion"] = {"labels": found.labels, "counts": found.confusion.tolist()}
    if loaded.experiment.task.transduces:
        report["decode"] = loaded.decoding(**settings).model_dump(mode="json")
    return report


def _draw(found: Evaluation, path: Path, title: str) -> Path:
    from headwise.inspect.confusion import confusion
    from headwise.inspect.files import save

    assert found.confusion is not None
    note = f"{found.scores[0]}; rows: what is true, columns: what was given"
    return save(confusion(found.confusion, found.labels, title, note), path)


def _draw_lengths(found: Evaluation, loaded: TrainedModel, path: Path, title: str) -> Path:
    from headwise.inspect.by_length import by_length, plot_by_length

    task: Any = loaded.task
    bins = by_length(found, score=lambda outputs, references: task.score_outputs(outputs, references)[0])
    plot_by_length({title: bins}, path)
    return path
