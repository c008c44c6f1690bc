"""`headwise fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import say, warnings_to_stderr


def fit(
    *files: Path,
    minutes: Annotated[float, Parameter(help="How long to train.")] = 10.0,
    name: Annotated[str, Parameter(help="Of the run; the file's name by default.")] = "",
    runs: Annotated[Path, Parameter(help="Where run folders are made.")] = Path("runs"),
    dry_run: Annotated[bool, Parameter(negative="", help="Print the experiment and train nothing.")] = False,
) -> None:
    """Train on your own pairs: no configuration, a time limit.

    Looks at the file, chooses tokeniser, size and schedule for the time given, holds out a validation part, trains,
    scores, and leaves a run to use, with an experiment file to refine.

    For example:

        headwise fit pairs.tsv --minutes 10
        headwise fit train.en train.de --minutes 60 --name en-de
        headwise fit pairs.tsv --dry-run > my.toml && headwise train my.toml

    Parameters
    ----------
    files
        One file with a tab between the sides, or two files aligned line by line; plain or .gz.
    """
    warnings_to_stderr()
    from headwise.errors import UserError

    if len(files) not in (1, 2):
        raise UserError("name one file with a tab between its two sides, or two aligned files")

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
        say(f"stopped; to go on: headwise train --resume {run.path}")
        raise SystemExit(130)
    found = load(run.path).evaluate()
    for source, output, listed in list(zip(found.sources, found.outputs, found.references, strict=True))[:5]:
        say(f"  {source}  ->  {output}  (given: {listed[0]})")
    for score in found.scores:
        say(f"held out: {score}")
    say(f"\nto use it:     headwise {chosen.experiment.task.command} {run.path}")
    say(f"to look inside: headwise inspect {run.path} {found.sources[0]!r} --out attention.html")
    say(f"to refine it:  edit a copy of {run.path}/config.toml and run `headwise train` on it")
    print(run.path)
