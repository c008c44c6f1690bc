"""`headwise train`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from logging import ERROR, WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from headwise.cli.common import Changes, DataRoot, log_to_stderr, say
from headwise.errors import UserError
from headwise.train.parallel.group import is_worker, join

if TYPE_CHECKING:
    from headwise.runs import Run
    from headwise.train.state import Result

    Start: TypeAlias = Callable[[], tuple[Run, Result]]


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
    processes: Annotated[int, Parameter(help="Train one model with so many processes of this machine.")] = 1,
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
        headwise train my.toml --processes 2
        torchrun --nproc-per-node 2 -m headwise train my.toml

    Parameters
    ----------
    experiment
        A TOML file; docs/experiments.md describes its keys.
    """
    with join() as group:
        log_to_stderr(WARNING if group.is_main else ERROR)
        if (experiment is None) == (resume is None):
            raise UserError("name an experiment file, or a run with --resume, but not both")
        if resume is not None:
            if set_:
                raise UserError("--set: changes a new experiment; a resumed run uses its config.toml")
            start = prepare_resume(
                resume, steps=steps, epochs=epochs, minutes=minutes, data_root=data_root or "",
                changed_data=changed_data,
            )  # fmt: skip
        else:
            if steps or epochs or minutes:
                text = "--steps, --epochs and --minutes: train a run longer; of a new one, --set train.steps=1000"
                raise UserError(text)
            if data_root or changed_data:
                text = "--data-root and --changed-data: go with --resume; of a new run, --set data.root=FOLDER"
                raise UserError(text)
            assert experiment is not None
            changes = [*(set_ or ()), *([f"train.device={device}"] if device else ())]
            start = prepare_new(experiment, changes, runs, warn=group.is_main and processes == 1)
        if processes != 1 and not is_worker():
            start_processes(processes)
        run, result = start()
    if not group.is_main:
        raise SystemExit(130 if result.interrupted else 0)
    best = result.best
    score = f", best {best['name']} {best['value']:.4g} at step {best['step']}" if best else ""
    say(f"stopped ({result.reason}) after {result.step} steps, {result.minutes:.1f} minutes{score}")
    if result.interrupted:
        say(f"to resume: headwise train --resume {run.path}")
    print(run.path)
    if result.interrupted:
        raise SystemExit(130)


def prepare_new(file: Path, changes: Sequence[str], runs: Path, warn: bool) -> Start:
    """Read an experiment; returns what trains it in a new run."""
    from headwise.experiment.config import Experiment

    experiment = Experiment.read(file, changes)

    def start() -> tuple[Run, Result]:
        from headwise.experiment.run import train_experiment
        from headwise.train.hardware import describe_busy_cores

        if warn and (warning := describe_busy_cores(experiment.train.threads)):
            say(warning)
        return train_experiment(experiment, runs, announce=say)

    return start


def prepare_resume(path: Path, **options: Any) -> Start:
    """Returns what resumes a run."""

    def start() -> tuple[Run, Result]:
        from headwise.experiment.run import resume

        return resume(path, say, **options)

    return start


def start_processes(processes: int) -> None:
    """Run this command in so many processes, and exit as they do."""
    if processes < 1:
        raise UserError(f"--processes {processes}: there is at least one")
    from headwise.experiment.launch import launch

    raise SystemExit(launch(sys.argv[1:], processes, say))
