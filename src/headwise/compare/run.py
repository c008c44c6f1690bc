"""Run the cells of a table in worker processes and collect their outcomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from pathlib import Path

from headwise.compare.cell import Cell, build_cells
from headwise.compare.config import ComparisonConfig
from headwise.compare.progress import Message, Progress, make_progress
from headwise.compare.values import Arm, Comparison
from headwise.config.plugins import list_options
from headwise.utils.cpu import count_cores
from headwise.utils.files import open_regular, writing

RUNS = Path("runs") / "compare"

Job = Callable[[int], str]  # takes a number of threads and returns an error message, or an empty string
Watch = Callable[[Message], str]  # called with every message of a worker; returns why to stop it, or an empty string


def never_stop(message: Message) -> str:
    """Let a worker go on."""
    return ""


def compare(
    config: ComparisonConfig,
    runs: str | Path = RUNS,
    *,
    jobs: int = 0,
    show: Progress | None = None,
) -> Comparison:
    """Train and evaluate the missing cells, and return the comparison.

    Cells are ordinary runs in `runs/NAME/ARM-SEED`; their outcomes are saved, so that calling it again costs nothing
    and a changed table runs only what changed. `jobs` cells run at once (0: one for each core), each with its share of
    the cores. A cell that fails is reported in its arm; Ctrl-C leaves everything to be resumed. Workers
    import the parts files that this process has imported.
    """
    all_cells = list(build_cells(config, runs))
    todo = [cell for cell in all_cells if not cell.load_outcome()]
    failures = WorkerPool(jobs, show or make_progress()).run(todo) if todo else {}
    arms = {}
    for arm in config.arm:
        arm_cells = [cell for cell in all_cells if cell.arm == arm.name]
        outcomes = {cell.seed: outcome for cell in arm_cells if (outcome := cell.load_outcome())}
        failed = {cell.seed: failures[cell.name] for cell in arm_cells if cell.name in failures}
        arms[arm.name] = Arm(arm.name, outcomes, failed, arm.published)
    comparison = Comparison(config.title or config.name, arms, config.published, analysis=config.analysis)
    return comparison.rank_by(config.score, config.lower)


class WorkerPool:
    """Worker processes, each watched by a thread."""

    def __init__(self, jobs: int, show: Progress):
        self.jobs, self.show = jobs, show
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.stopping = False

    def run(self, todo: Sequence[Cell]) -> dict[str, str]:
        """Run the cells; returns the error messages of failed ones by name."""
        return self.run_jobs({cell.name: partial(self.run_cell, cell) for cell in todo})

    def run_jobs(self, jobs: Mapping[str, Job]) -> dict[str, str]:
        """Run functions that call `run_cell`, each in a thread; returns the error messages of failed ones by name."""
        parallel = min(self.jobs or count_cores(), len(jobs))
        threads = max(1, count_cores() // parallel)
        failures = {}
        with self.show, ThreadPoolExecutor(parallel) as pool:
            waiting: dict[Future[str], str] = {pool.submit(job, threads): name for name, job in jobs.items()}
            try:
                for done in as_completed(waiting):
                    if sentence := done.result():
                        failures[waiting[done]] = sentence
            except BaseException:  # Ctrl-C above all
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
                raise
        return failures

    def run_cell(self, cell: Cell, threads: int, watch: Watch = never_stop) -> str:
        """Run one cell in a worker process; returns an error message, or an empty string."""
        failure = stop_reason = ""
        with self._start(cell, threads) as process:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):  # the process died at once; its exit status is reported below
                process.stdin.write(cell.model_dump_json() + "\n")
                process.stdin.flush()
            self.running[cell.name] = process
            if self.stopping:  # started while the others were being stopped
                self._stop()
            self.show.update(cell.name, {"share": 0.0, "step": 0, "text": "starting"})
            for line in process.stdout:
                message = json.loads(line)
                failure = message.get("failed", "")
                if not failure:
                    self.show.update(cell.name, message)
                    if not stop_reason and (stop_reason := watch(message)):
                        _close_stdin(process)
            process.wait()
            del self.running[cell.name]
        outcome = cell.load_outcome()
        if not outcome and stop_reason:
            self.show.end(cell.name, stop_reason)
            return ""
        if not outcome and not failure:
            failure = f"its process ended with status {process.returncode}; see {cell.log}"
        if outcome:
            self.show.end(cell.name, "  ".join(map(str, outcome.scores.values())))
            return ""
        self.show.end(cell.name, "stopped; can be resumed" if self.stopping else f"failed: {failure}")
        return failure

    def _start(self, cell: Cell, threads: int) -> subprocess.Popen[str]:
        with writing(cell.log):
            cell.log.parent.mkdir(parents=True, exist_ok=True)
            log = os.fdopen(open_regular(cell.log, os.O_WRONLY | os.O_CREAT), "w")
            log.truncate()
        with log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "headwise.compare.worker", *list_options()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": str(threads)},
                start_new_session=True,  # Ctrl-C reaches only this process; it stops workers by closing their stdin
            )

    def _stop(self) -> None:
        self.stopping = True
        for process in list(self.running.values()):
            _close_stdin(process)


def _close_stdin(process: subprocess.Popen[str]) -> None:
    """Ask a worker to save a checkpoint and exit."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
