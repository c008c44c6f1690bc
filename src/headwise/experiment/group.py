"""Training by several processes: what they must have in common, and the run that a launch has begun already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from socket import gethostname
from typing import Any

from headwise.config.plugins import collect_parts
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.runs import Run
from headwise.runs.differences import flatten
from headwise.runs.manifest import NAME as MANIFEST
from headwise.runs.run import find_runs, find_versions
from headwise.train import hardware
from headwise.train.parallel.group import Group

RESTARTS = "HEADWISE_RESTARTS"  # how often `--processes` has started its processes again


def connect(group: Group, experiment: Experiment, **settings: Any) -> None:
    """Prepare the hardware and connect the processes; those that have not the same experiment, versions and `settings`
    are refused, and tasks that do not divide their batches."""
    hardware.prepare(experiment.train)  # before the first tensor: worker threads read its flags when they start
    if group.size == 1:
        return
    kind, strategy = experiment.task.kind, experiment.train.parallel
    if not experiment.task.divisible:
        raise UserError(f"the task '{kind}' trains on one process, not on {group.size}; leave out --processes")
    if strategy.kind == "none":
        raise UserError(f'train.parallel: "none" trains on one process, not on {group.size}; set "ddp"')
    parts = {name: blake2b(code, digest_size=8).hexdigest() for name, code in collect_parts(experiment).items()}
    group.check_same({**flatten(experiment.model_dump(mode="json")), **find_versions(), **parts, **settings})
    group.start(strategy.timeout)


def name_launch() -> str:
    """A name of what started these processes, the same after it has started them again: that which torchrun was given,
    or else a hash of its process."""
    given = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if given != "none":
        return given
    return blake2b(f"{gethostname()} {os.getppid()}".encode(), digest_size=8).hexdigest()


def describe_launch(group: Group) -> Mapping[str, str]:
    """What a run's info.json says of the launch of its processes; nothing for one process."""
    return {} if group.size == 1 else {"launch": name_launch()}


def find_launched_run(folder: str | Path) -> str:
    """The run that this launch trained before it was started again; empty if it had not begun one."""
    counts = (os.environ.get(name, "0") for name in ("TORCHELASTIC_RESTART_COUNT", RESTARTS))
    if not any(map(int, counts)):
        return ""
    launch = name_launch()
    begun = [run for run in find_runs(folder) if run.info.get("launch") == launch and (run.path / MANIFEST).exists()]
    return str(begun[-1].path.resolve()) if begun else ""


def open_shared(group: Group) -> Run:
    """The run that the main process has begun, as soon as it has."""
    path = group.broadcast()
    try:
        return Run.open(path)
    except UserError:
        raise UserError(
            f"process {group.rank} on {gethostname()} does not see {path}, the run of process 0; name a folder that "
            "all machines share with --runs"
        ) from None
