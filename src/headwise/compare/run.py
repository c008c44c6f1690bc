"""Run the cells of a table in worker processes and collect their outcomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from headwise.compare.cell import Cell, build_cells
from headwise.compare.config import ComparisonConfig
from headwise.compare.progress import Progress, make_progress
from headwise.compare.values import Arm, Comparison
from headwise.config.plugins import list_options
from headwise.utils.cpu import count_cores
from headwise.utils.files import open_regular, writing

RUNS = Path("runs") / "compare"


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
    comparison = Comparison(config.title or config.name, arms, config.published)
    return comparison.rank_by(config.score, config.lower)


class WorkerPool:
    """Worker processes, each watched by a thread."""

    def __init__(self, jobs: int, show: Progress):
        self.jobs, self.show = jobs, show
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.stopping = False

    def run(self, todo: Sequence[Cell]) -> dict[str, str]:
        """Run the cells; returns the error messages of failed ones by name."""
        jobs = min(self.jobs or count_cores(), len(todo))
        threads = max(1, count_cores() // jobs)
        failures = {}
        with self.show, ThreadPoolExecutor(jobs) as pool:
            waiting: dict[Future[str], Cell] = {pool.submit(self._run_cell, cell, threads): cell for cell in todo}
            try:
                for done in as_completed(waiting):
                    if sentence := done.result():
                        failures[waiting[done].name] = sentence
            except BaseException:  # Ctrl-C above all
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
                raise
        return failures

    def _run_cell(self, cell: Cell, threads: int) -> str:
        """Run one cell; returns an error message, or an empty string."""
        failure = ""
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
            process.wait()
            del self.running[cell.name]
        outcome = cell.load_outcome()
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
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
