"""`headwise train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import Changes, DataRoot, log_to_stderr, say
from headwise.errors import UserError


def train(
    experiment: Path | None = None,
    *,
    set_: Changes = None,
    resume: Annotated[Path | None, Parameter(help="Resume this run.")] = None,
    minutes: Annotated[float, Parameter(help="With --resume: train this many minutes longer.")] = 0.0,
    steps: Annotated[int, Parameter(help="With --resume: train this many steps longer.")] = 0,
    epochs: Annotated[int, Parameter(help="With --resume: train this many epochs longer.")] = 0,
    data_root: DataRoot = None,
    changed_data: Annotated[
        bool, Parameter(negative="", help="With --resume: train on data that have changed since the run began.")
    ] = False,
    runs: Annotated[Path, Parameter(help="The folder for new runs.")] = Path("runs"),
    device: Annotated[str, Parameter(help="cpu, cuda, ...; overrides train.device.")] = "",
) -> None:
    """Train an experiment file in a new run folder, or resume a run.

    Ctrl-C stops at the next step and saves a checkpoint, from which the run can be resumed. The path of the run folder
    is printed on stdout. A finished run is trained longer with --minutes, --steps or --epochs: its schedule restarts
    with a short warm-up and decays over the new budget, its optimiser state is kept.

    For example:

        headwise train experiments/cmudict.toml
        headwise train my.toml --set model.wiring=pre --set train.minutes=20
        headwise train my.toml --set 'model.output_layer={kind="adaptive", cutoffs=[2000, 6000]}'
        headwise train my.toml --set data.format=parquet --set "data.train=shards/*.parquet"
        headwise train --resume runs/my
        headwise train --resume runs/my --minutes 10
        headwise train --resume /elsewhere/my --data-root /disk/corpora
        headwise train my.toml --set 'train.observers=["tensorboard"]'

    Parameters
    ----------
    experiment
        A TOML file; docs/experiments.md describes its keys.
    """
    log_to_stderr()
    if (experiment is None) == (resume is None):
        raise UserError("name an experiment file, or a run with --resume, but not both")

    if resume is not None:
        if set_:
            raise UserError("--set: changes a new experiment; a resumed run uses its config.toml")
        from headwise.experiment.run import resume as resume_run

        run, result = resume_run(
            resume, say, steps=steps, epochs=epochs, minutes=minutes, data_root=data_root or "",
            changed_data=changed_data,
        )  # fmt: skip
    else:
        if steps or epochs or minutes:
            raise UserError("--steps, --epochs and --minutes: train a run longer; of a new one, --set train.steps=1000")
        if data_root or changed_data:
            raise UserError("--data-root and --changed-data: go with --resume; of a new run, --set data.root=FOLDER")
        from headwise.experiment.config import Experiment

        assert experiment is not None
        settings = Experiment.read(experiment, [*(set_ or ()), *([f"train.device={device}"] if device else ())])

        from headwise.experiment.run import train_experiment
        from headwise.train.hardware import describe_busy_cores

        if warning := describe_busy_cores(settings.train.threads):
            say(warning)
        run, result = train_experiment(settings, runs, announce=say)
    best = result.best
    score = f", best {best['name']} {best['value']:.4g} at step {best['step']}" if best else ""
    say(f"stopped ({result.reason}) after {result.step} steps, {result.minutes:.1f} minutes{score}")
    if result.interrupted:
        say(f"to resume: headwise train --resume {run.path}")
    print(run.path)
    if result.interrupted:
        raise SystemExit(130)
