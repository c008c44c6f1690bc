"""Run the cells of a table in processes of their own, and collect what they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from headwise.compare.cell import Cell, cells
from headwise.compare.config import ComparisonConfig
from headwise.compare.progress import Progress, make_progress
from headwise.compare.values import Arm, Comparison
from headwise.utils.cpu import cores
from headwise.utils.files import open_regular, writing

RUNS = Path("runs") / "compare"


def compare(
    config: ComparisonConfig,
    runs: str | Path = RUNS,
    *,
    jobs: int = 0,
    parts: Iterable[str | Path] = (),
    show: Progress | None = None,
) -> Comparison:
    """Train and evaluate what is not yet there, and return everything.

    Cells are ordinary runs in `runs/NAME/ARM-SEED`; their outcomes are kept, so that calling it again costs nothing and
    a changed table runs only what changed. `jobs` cells run at once (0: one for each core), each with its share of the
    cores. A cell that fails is reported in its arm; Ctrl-C leaves everything to be resumed. `parts` are the files of
    `--with`.
    """
    every = list(cells(config, runs))
    todo = [cell for cell in every if not cell.outcome()]
    failures = Pool(jobs, [str(file) for file in parts], show or make_progress()).run(todo) if todo else {}
    arms = {}
    for arm in config.arm:
        own = [cell for cell in every if cell.arm == arm.name]
        kept = {cell.seed: outcome for cell in own if (outcome := cell.outcome())}
        failed = {cell.seed: failures[cell.name] for cell in own if cell.name in failures}
        arms[arm.name] = Arm(arm.name, kept, failed, arm.published)
    found = Comparison(config.title or config.name, arms, config.published)
    return found.ranked_by(config.score, config.lower)


class Pool:
    """Some processes at once, each watched by a thread."""

    def __init__(self, jobs: int, parts: Sequence[str], show: Progress):
        self.jobs, self.parts, self.show = jobs, parts, show
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.stopping = False

    def run(self, todo: Sequence[Cell]) -> dict[str, str]:
        """Why cells failed, by name."""
        jobs = min(self.jobs or cores(), len(todo))
        threads = max(1, cores() // jobs)
        failures = {}
        with self.show, ThreadPoolExecutor(jobs) as pool:
            waiting: dict[Future[str], Cell] = {pool.submit(self._cell, cell, threads): cell for cell in todo}
            try:
                for done in as_completed(waiting):
                    if sentence := done.result():
                        failures[waiting[done].name] = sentence
            except BaseException:  # Ctrl-C above all
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
                raise
        return failures

    def _cell(self, cell: Cell, threads: int) -> str:
        """Run one cell to its end; returns why it failed, or nothing."""
        sentence = ""
        with self._start(cell, threads) as process:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):  # it died at once: its status says so
                process.stdin.write(cell.model_dump_json() + "\n")
                process.stdin.flush()
            self.running[cell.name] = process
            if self.stopping:  # it began while the others were stopped
                self._stop()
            self.show.update(cell.name, {"share": 0.0, "step": 0, "text": "starting"})
            for line in process.stdout:
                message = json.loads(line)
                sentence = message.get("failed", "")
                if not sentence:
                    self.show.update(cell.name, message)
            process.wait()
            del self.running[cell.name]
        outcome = cell.outcome()
        if not outcome and not sentence:
            sentence = f"its process ended with status {process.returncode}; {cell.log} tells more"
        if outcome:
            self.show.end(cell.name, "  ".join(map(str, outcome.scores.values())))
            return ""
        self.show.end(cell.name, "stopped, to be resumed" if self.stopping else f"failed: {sentence}")
        return sentence

    def _start(self, cell: Cell, threads: int) -> subprocess.Popen[str]:
        with writing(cell.log):
            cell.log.parent.mkdir(parents=True, exist_ok=True)
            log = os.fdopen(open_regular(cell.log, os.O_WRONLY | os.O_CREAT), "w")
            log.truncate()
        with log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "headwise.compare.worker", *self.parts],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": str(threads)},
                start_new_session=True,  # Ctrl-C comes to us alone; letting go of stdin is how we pass it on
            )

    def _stop(self) -> None:
        self.stopping = True
        for process in list(self.running.values()):
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
