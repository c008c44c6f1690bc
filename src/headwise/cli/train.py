"""`headwise train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import Changes, With, say, warnings_to_stderr
from headwise.errors import UserError


def train(
    experiment: Path | None = None,
    *,
    set_: Changes = None,
    resume: Annotated[Path | None, Parameter(help="Go on with this run instead.")] = None,
    runs: Annotated[Path, Parameter(help="Where run folders are made.")] = Path("runs"),
    device: Annotated[str, Parameter(help="cpu, cuda, ...; instead of the experiment's train.device.")] = "",
    with_: With = None,
) -> None:
    """Train an experiment file in a new run folder, or resume a run.

    Ctrl-C stops at the next step, saves a checkpoint and leaves a run that can be resumed. The folder's path is
    printed on stdout.

    For example:

        headwise train experiments/cmudict.toml
        headwise train my.toml --set model.wiring=pre --set train.minutes=20
        headwise train --resume runs/my

    Parameters
    ----------
    experiment
        A TOML file; docs/experiments.md describes its keys.
    """
    warnings_to_stderr()
    if (experiment is None) == (resume is None):
        raise UserError("name an experiment file to train, or a run with --resume, and not both")

    from headwise.utils.plugins import add_parts

    add_parts(with_ or ())
    if resume is not None:
        if set_:
            raise UserError("--set changes a new experiment; a resumed run goes on with its own config.toml")
        from headwise.experiment.run import resume as go_on

        run, result = go_on(resume, announce=say)
    else:
        from headwise.experiment.config import Experiment

        assert experiment is not None
        settings = Experiment.read(experiment, [*(set_ or ()), *([f"train.device={device}"] if device else ())])

        from headwise.experiment.run import train_experiment
        from headwise.train.hardware import describe_busy_cores

        if warning := describe_busy_cores(settings.train.threads):
            say(warning)
        run, result = train_experiment(settings, runs, announce=say)
    best = result.best
    scored = f", best {best['name']} {best['value']:.4g} at step {best['step']}" if best else ""
    say(f"stopped by {result.reason} after {result.step} steps, {result.minutes:.1f} minutes{scored}")
    if result.interrupted:
        say(f"to go on: headwise train --resume {run.path}")
    print(run.path)
    if result.interrupted:
        raise SystemExit(130)
