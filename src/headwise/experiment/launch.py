"""Start several processes that train one model on this machine, with torch's launcher (torchrun)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from signal import SIGTERM, Signals

from headwise.errors import UserError
from headwise.experiment.group import RESTARTS
from headwise.utils.cpu import count_cores

MAX_RESTARTS = 3  # of processes that were killed; an error of their own ends all
MISTAKE = 2  # exit status of a process that has reported an error of the user
THREADS = "OMP_NUM_THREADS"


def launch(arguments: Sequence[str], processes: int, announce: Callable[[str], None]) -> int:
    """Run `headwise` with these arguments in several processes, and again if one of them is killed: they resume the run
    from its last checkpoint. Returns the exit status."""
    os.environ.setdefault(THREADS, str(max(1, count_cores() // processes)))
    os.environ.setdefault("LOGLEVEL", "CRITICAL")  # of the launcher: failures are told below, in one sentence
    for attempt in range(MAX_RESTARTS + 1):
        os.environ[RESTARTS] = str(attempt)
        codes = run_processes(arguments, processes)
        # the launcher itself sends SIGTERM to those that are left when one has failed
        fatal = {rank: Signals(-code) for rank, code in codes.items() if code < 0 and -code != SIGTERM}
        killed = [f"{rank} was killed by {signal.name}" for rank, signal in fatal.items()]
        if not killed:
            return MISTAKE if MISTAKE in codes.values() else max(codes.values(), default=0)
        if attempt < MAX_RESTARTS:
            announce(f"process {killed[0]}; starting all again from the last checkpoint")
    raise UserError(f"process {killed[0]}, the {attempt + 1}th time; lower train.batch_size if memory has run out")


def run_processes(arguments: Sequence[str], processes: int) -> Mapping[int, int]:
    """The exit codes of the processes that failed, by rank: negative for a signal."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id="none",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "headwise", *arguments)
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}
    except SignalException as error:  # passed on to the processes, which have saved a checkpoint
        return {0: 128 + error.sigval.value}
    return {}
