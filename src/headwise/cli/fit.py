"""`headwise fit`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import Json, log_to_stderr, say


def fit(
    *files: Path,
    minutes: Annotated[float, Parameter(help="Training time.")] = 10.0,
    task: Annotated[str, Parameter(help="Overrule the task that is recognised, such as classify or regress.")] = "",
    columns: Annotated[
        list[str] | None,
        Parameter(
            negative="", consume_multiple=True, help="Columns of the texts, then of the target: names, or numbers."
        ),
    ] = None,
    from_: Annotated[
        str, Parameter(name="--from", help="Start from a run, a Hugging Face folder, or org/name of the Hub.")
    ] = "",
    language: Annotated[str, Parameter(help="Language of the outputs, for BLEU's tokenisation.")] = "en",
    name: Annotated[str, Parameter(help="Name of the run; by default that of the file.")] = "",
    runs: Annotated[Path, Parameter(help="The folder for new runs.")] = Path("runs"),
    dry_run: Annotated[bool, Parameter(negative="", help="Print the experiment instead of training.")] = False,
    json_: Json = False,
) -> None:
    """Train on your own data within a time limit, without a config file.

    Recognises the data by their content: pairs of texts, labelled texts, numbers to predict, plain texts, tagged words,
    questions with answers, images by class, with boxes or with captions, in text files, CSV, JSON lines, Parquet,
    Arrow, CoNLL, SQuAD's or COCO's JSON, and folders; compressed or not. Says what it took them for, holds a part out,
    chooses model, tokeniser and schedule for the time, trains, evaluates beside a baseline, and leaves a run with its
    experiment file and a model card (README.md).

    For example:

        headwise fit pairs.tsv --minutes 10
        headwise fit reviews.csv --columns text stars --task regress
        headwise fit train.en train.de --minutes 60 --language de
        headwise fit photos/ --dry-run
        headwise fit reviews.jsonl --from runs/my-bert
        headwise fit reviews.jsonl --from google-bert/bert-base-uncased
        headwise fit pairs.tsv --dry-run > my.toml && headwise train my.toml

    Parameters
    ----------
    files
        One file or folder, two files aligned line by line, or several files of one kind.
    """
    log_to_stderr()
    from headwise.autofit.fit import describe, fit_files, prepare_fit, shorten, summarise

    chosen = {"minutes": minutes, "name": name, "task": task, "columns": columns or (), "init_from": from_}
    chosen["language"] = language
    if dry_run:
        recognition, plan = prepare_fit(files, **chosen)  # type: ignore[arg-type]
        for line in describe(files, recognition, plan):
            say(line)
        print(plan.experiment.to_toml())
        return
    fitted = fit_files(files, runs=runs, announce=say, **chosen)  # type: ignore[arg-type]
    if fitted.result.interrupted:
        say(f"stopped; to resume: headwise train --resume {shlex.quote(str(fitted.run.path))}")
        raise SystemExit(130)
    from headwise.autofit.model_card import describe_export, list_commands, to_json
    from headwise.experiment.load import load

    evaluation = fitted.evaluation
    for source, output, listed in list(zip(evaluation.sources, evaluation.outputs, evaluation.references, strict=True))[
        :5
    ]:
        say(f"  {shorten(source, 70)}  ->  {shorten(output, 70)}  (reference: {shorten(listed[0], 70)})")
    for line in summarise(fitted):
        say(line)
    say(f"\nmodel card: {fitted.run.path / 'README.md'}")
    trained = load(fitted.run.path)
    for purpose, command in list_commands(fitted.run, trained, evaluation).items():
        say(f"to {purpose} it: {command}")
    say(describe_export(trained).replace("`", ""))
    print(to_json(evaluation, fitted.baselines) if json_ else fitted.run.path)
