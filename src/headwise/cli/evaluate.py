"""`headwise evaluate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headwise.cli.common import (
    Beams,
    Checkpoint,
    CoveragePenalty,
    DataRoot,
    Device,
    Ensemble,
    Json,
    LengthPenalty,
    Threads,
    load_model,
    say,
)
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.data.read import Pair
    from headwise.inference.trained_model import TrainedModel
    from headwise.tasks.base import Evaluation


def evaluate(
    run: Path,
    *,
    data: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=True,
            help="Your own data: a file in any format, two aligned files, a folder; images.",
        ),
    ] = None,
    data_root: DataRoot = None,
    and_: Ensemble = None,
    beams: Beams = None,
    length_penalty: LengthPenalty = None,
    coverage_penalty: CoveragePenalty = None,
    language: Annotated[str, Parameter(help="Language of the outputs, for BLEU's tokenisation.")] = "en",
    outputs: Annotated[Path | None, Parameter(help="Write source, output and references to this TSV.")] = None,
    confusion: Annotated[Path | None, Parameter(help="Draw the confusion matrix to this .svg or .png.")] = None,
    by_length: Annotated[Path | None, Parameter(help="Plot the score over source length to this .svg or .png.")] = None,
    by_return: Annotated[
        Path | None, Parameter(help="Of an agent: plot returns over those asked for to this .svg or .png.")
    ] = None,
    show: Annotated[int, Parameter(help="Print this many examples.")] = 0,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Evaluate a run, with 95 % confidence intervals (bootstrap over examples).

    Encoder-decoders are scored by BLEU or error rates, language models by perplexity, classifiers by accuracy and F1,
    agents by the returns of new episodes in their environment.
    Without --data: on the experiment's test split, or its validation split if there is no test split.

    For example:

        headwise evaluate runs/demo
        headwise evaluate runs/multi30k --beams 5 --language de --json
        headwise evaluate runs/mine --data held_out.tsv --show 10
        headwise evaluate runs/mine --data test.en test.de
        headwise evaluate /elsewhere/runs/mine --data-root /disk/corpora
        headwise evaluate runs/reviews --data other_reviews.parquet
        headwise evaluate runs/multi30k --by-length lengths.svg
        headwise evaluate runs/ewt-lstm --confusion tags.svg
        headwise evaluate runs/shakespeare-lstm --data sonnets.txt
        headwise evaluate vit-base-patch16-224 --data photos/
        headwise evaluate runs/grid --by-return returns.svg
    """
    loaded = load_model([run, *(and_ or ())], checkpoint, device, threads, data_root)
    _check(loaded, outputs, show, confusion, by_length, by_return)
    options = {"beams": beams, "length_penalty": length_penalty, "coverage_penalty": coverage_penalty}
    settings: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    pairs: Sequence[Pair] = ()
    if data and loaded.experiment.task.reads in ("episodes", "environment"):
        raise UserError("--data: an agent is scored by new episodes in its environment; leave it out")
    if data and loaded.experiment.task.reads == "images":
        loaded = _replace_images(loaded, data)
    elif data:
        pairs = _read_pairs(tuple(Path(file) for file in data), loaded)
    evaluation = loaded.evaluate(pairs, language=language, **settings)
    rows = list(zip(evaluation.sources, evaluation.outputs, evaluation.references, strict=True))
    if outputs:
        from headwise.utils.files import write

        write(outputs, "".join("\t".join([source, output, *listed]) + "\n" for source, output, listed in rows))
        say(f"outputs: {outputs}")
    if confusion:
        say(f"confusion matrix: {_draw_confusion(evaluation, confusion, run.name)}")
    if by_length:
        say(f"score over length: {_draw_by_length(evaluation, loaded, by_length, run.name)}")
    if by_return:
        from headwise.inspect.returns import plot_returns

        say(f"returns: {plot_returns(evaluation, by_return, run.name)}")
    if json_:
        print(json.dumps({"run": str(run)} | _to_json(evaluation, loaded, settings), indent=1))
        return
    for source, output, listed in rows[:show]:
        print(f"{source}\n  {output}\n  {'  |  '.join(listed)}")
    for score in evaluation.scores:
        print(score)


def _check(
    loaded: TrainedModel,
    outputs: Path | None,
    show: int,
    confusion: Path | None,
    by_length: Path | None,
    by_return: Path | None,
) -> None:
    """Raise for options that do not fit the task, before the evaluation."""
    from headwise.inspect.files import check_ending

    task, kind = loaded.experiment.task, loaded.task.kind
    if (outputs or show) and task.unpaired:
        raise UserError(f"--outputs and --show: {kind} generates no outputs; use `headwise {task.command}`")
    if by_length and not task.transduces:
        raise UserError(f"--by-length: this run was trained to {kind}, and needs source and output texts; leave it out")
    if confusion and not task.confusion:
        from headwise.tasks.tables import TASKS, task_config

        known = " or ".join(name for name in TASKS.names if task_config(name).confusion)
        raise UserError(f"--confusion: this run was trained to {kind}; name one that was trained to {known}")
    if by_return and task.reads != "episodes":
        raise UserError(f"--by-return: this run was trained to {kind}, and is asked for no return; leave it out")
    for picture in (confusion, by_length, by_return):
        if picture:
            check_ending(picture, ".svg", ".png")


def _replace_images(loaded: TrainedModel, data: Sequence[str]) -> TrainedModel:
    """The model with other images as data: a named dataset, or a folder."""
    from headwise.config.base import validate
    from headwise.vision.config import ImagesConfig

    if len(data) > 1:
        raise UserError("--data: name one image dataset, or one folder with a folder for each class")
    parts = dict.fromkeys(("train", "valid", "test"), data[0])  # all splits, so that the whole folder is scored
    images = validate(ImagesConfig, parts if Path(data[0]).exists() else {"name": data[0]}, "--data")
    return replace(loaded, experiment=loaded.experiment.replace(data=images), run=None)


def _read_pairs(files: tuple[Path, ...], loaded: TrainedModel) -> Sequence[Pair]:
    from headwise.data.config import TextDataConfig
    from headwise.data.formats import choose_format
    from headwise.data.read import read_pairs

    data, task = loaded.experiment.data, loaded.experiment.task
    assert isinstance(data, TextDataConfig)
    if len(files) > 2:
        raise UserError("--data: give one file, or two that are aligned line by line")
    data = choose_format(files[0], data.replace(one_to_one=task.one_to_one), task.unpaired)
    return list(read_pairs(files, data.format, data.read_options))


def _to_json(evaluation: Evaluation, loaded: TrainedModel, settings: dict[str, Any]) -> dict[str, Any]:
    """The object that --json prints."""
    report: dict[str, Any] = {"task": loaded.task.kind, "scores": [score.to_json() for score in evaluation.scores]}
    if evaluation.sources:
        report["items"] = len(evaluation.sources)
    if evaluation.confusion is not None:
        report["confusion"] = {"labels": evaluation.labels, "counts": evaluation.confusion.tolist()}
    if loaded.experiment.task.transduces:
        report["decode"] = loaded.build_decode_config(**settings).model_dump(mode="json")
    return report


def _draw_confusion(evaluation: Evaluation, path: Path, title: str) -> Path:
    from headwise.inspect.confusion import draw_confusion_matrix
    from headwise.inspect.files import save

    assert evaluation.confusion is not None
    note = f"{evaluation.scores[0]}; rows: true labels, columns: predicted labels"
    return save(draw_confusion_matrix(evaluation.confusion, evaluation.labels, title, note), path)


def _draw_by_length(evaluation: Evaluation, loaded: TrainedModel, path: Path, title: str) -> Path:
    from headwise.inspect.by_length import plot_by_length, score_by_length

    task: Any = loaded.task
    bins = score_by_length(evaluation, score=lambda outputs, references: task.score_outputs(outputs, references)[0])
    plot_by_length({title: bins}, path)
    return path
