"""`headwise fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import log_to_stderr, say


def fit(
    *files: Path,
    minutes: Annotated[float, Parameter(help="Training time.")] = 10.0,
    name: Annotated[str, Parameter(help="Name of the run; by default that of the file.")] = "",
    runs: Annotated[Path, Parameter(help="The folder for new runs.")] = Path("runs"),
    dry_run: Annotated[bool, Parameter(negative="", help="Print the experiment instead of training.")] = False,
) -> None:
    """Train on your own data within a time limit, without a config file.

    Reads the file, chooses tokeniser, model size and schedule for the time, holds out a validation split, trains and
    evaluates. The run folder has the experiment, to be refined.

    For example:

        headwise fit pairs.tsv --minutes 10
        headwise fit train.en train.de --minutes 60 --name en-de
        headwise fit pairs.tsv --dry-run > my.toml && headwise train my.toml

    Parameters
    ----------
    files
        One file with a tab between source and target, or two files aligned line by line; plain or .gz.
    """
    log_to_stderr()
    from headwise.errors import UserError

    if len(files) not in (1, 2):
        raise UserError("name one file with a tab between source and target, or two aligned files")

    from headwise.experiment.autofit import plan

    chosen = plan(files, minutes, name)
    for reason in chosen.reasons:
        say(reason)
    if dry_run:
        print(chosen.experiment.to_toml())
        return
    from headwise.experiment.load import load
    from headwise.experiment.run import train_experiment

    run, result = train_experiment(chosen.experiment, runs, announce=say)
    if result.interrupted:
        say(f"stopped; to resume: headwise train --resume {run.path}")
        raise SystemExit(130)
    evaluation = load(run.path).evaluate()
    for source, output, listed in list(zip(evaluation.sources, evaluation.outputs, evaluation.references, strict=True))[
        :5
    ]:
        say(f"  {source}  ->  {output}  (reference: {listed[0]})")
    for score in evaluation.scores:
        say(f"held-out {score}")
    say(f"\nto use it:      headwise {chosen.experiment.task.command} {run.path}")
    say(f"to inspect it:  headwise inspect {run.path} {evaluation.sources[0]!r} --out attention.html")
    say(f"to refine it:   edit a copy of {run.path}/config.toml, then `headwise train`")
    print(run.path)
