"""Run the cells of a table in worker processes and collect their outcomes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from headwise.compare.cell import Cell, CellId, build_cells
from headwise.compare.config import SHIPPED, ComparisonConfig
from headwise.compare.progress import Message, Progress, make_progress
from headwise.compare.records import Records
from headwise.compare.values import Arm, Comparison, Outcome
from headwise.config.plugins import list_options
from headwise.errors import UserError
from headwise.utils.cpu import count_cores
from headwise.utils.files import open_regular, writing

RUNS = Path("runs") / "compare"

Job = Callable[[int], str]  # takes a number of threads and returns an error message, or an empty string
Watch = Callable[[Message], str]  # called with every message of a worker; returns why to stop it, or an empty string


STOPPED = "stopped; the same command continues it"
STOP_SECONDS = 90.0  # for the last checkpoint of a worker that is asked to stop; then it is killed


class Stopped(KeyboardInterrupt):
    """Ctrl-C or a signal ended comparisons; `results` are what had finished, by table."""

    def __init__(self, results: Mapping[str, Comparison]):
        super().__init__("stopped")
        self.results = results


def never_stop(message: Message) -> str:
    """Let a worker go on."""
    return ""


def compare(
    config: ComparisonConfig,
    runs: str | Path = RUNS,
    *,
    jobs: int = 0,
    show: Progress | None = None,
    needed: Collection[CellId] = (),
) -> Comparison:
    """Train and evaluate the missing cells, and return the comparison.

    Cells are ordinary runs in `runs/NAME/ARM-SEED`; their outcomes are saved, so that calling it again costs nothing
    and a changed table runs only what changed. `jobs` cells run at once (0: one for each core), each with its share of
    the cores. A cell that fails is reported in its arm; Ctrl-C, SIGTERM and SIGHUP leave everything to be resumed, and
    raise `Stopped`. Workers import the parts files that this process has imported.

    Outcomes in `config.records` are not measured again, but for cells that are `needed`: others start from their runs.
    """
    records = Records.read(config.records)
    missing = [
        cell
        for cell in build_cells(config, runs)
        if not (cell.load_outcome() if cell.id in needed else find_outcome(cell, records))
    ]
    failures = {cell.name: _explain_wait(cell, config, runs) for cell in missing if cell.awaited}
    if todo := [cell for cell in missing if cell.name not in failures]:
        pool = WorkerPool(jobs, show or make_progress())
        try:
            failures |= pool.run(todo)
        except KeyboardInterrupt:
            stopped = {cell.name: STOPPED for cell in todo} | pool.failures
            raise Stopped({config.name: load_comparison(config, runs, failures | stopped)}) from None
    return load_comparison(config, runs, failures)


def find_outcome(cell: Cell, records: Records) -> Outcome | None:
    """The outcome of a cell's own run, else a recorded one."""
    return cell.load_outcome() or records.find(cell)


def load_comparison(config: ComparisonConfig, runs: str | Path, failures: Mapping[str, str]) -> Comparison:
    """What has finished; `failures` are messages by the names of cells."""
    records = Records.read(config.records)
    all_cells, arms = list(build_cells(config, runs)), {}
    for arm in config.arm:
        arm_cells = [cell for cell in all_cells if cell.arm == arm.name]
        outcomes = {cell.seed: outcome for cell in arm_cells if (outcome := find_outcome(cell, records))}
        failed = {
            cell.seed: failures[cell.name]
            for cell in arm_cells
            if cell.name in failures and cell.seed not in outcomes  # one may finish while it is being stopped
        }
        arms[arm.name] = Arm(arm.name, outcomes, failed, arm.published)
    comparison = Comparison(config.title or config.name, arms, config.published, analysis=config.analysis)
    return comparison.rank_by(config.score, config.lower)


def _explain_wait(cell: Cell, config: ComparisonConfig, runs: str | Path) -> str:
    file = Path(config.start_from)
    table = file.stem if file.parent in SHIPPED else str(file)
    command = shlex.join(
        ["headwise", "compare", table, "--arm", cell.arm, "--seeds", str(cell.seed), "--retrain", "--runs", str(runs)]
    )
    return f"it starts from {cell.awaited}, which is not finished; train that first: {command}"


class WorkerPool:
    """Worker processes, each watched by a thread."""

    def __init__(self, jobs: int, show: Progress):
        self.jobs, self.show = jobs, show
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.failures: dict[str, str] = {}
        self.stopping = False

    def run(self, todo: Sequence[Cell]) -> dict[str, str]:
        """Run the cells; returns the error messages of failed ones by name."""
        return self.run_jobs({cell.name: partial(self.run_cell, cell) for cell in todo})

    def run_jobs(self, jobs: Mapping[str, Job]) -> dict[str, str]:
        """Run functions that call `run_cell`, each in a thread; returns the error messages of failed ones by name.

        SIGTERM and SIGHUP are as Ctrl-C: workers save a checkpoint and end, and KeyboardInterrupt is raised. A worker
        that does not end is killed, at once if there is a second signal.
        """
        parallel = min(self.jobs or count_cores(), len(jobs))
        threads = max(count_cores() // parallel, 1)
        with self.show, interrupt_on_signals(), ThreadPoolExecutor(parallel) as pool:
            waiting: dict[Future[str], str] = {pool.submit(job, threads): name for name, job in jobs.items()}
            try:
                for done in as_completed(waiting):
                    if sentence := done.result():
                        self.failures[waiting[done]] = sentence
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
                with self._kill_on_interrupt():
                    wait(job for job in waiting if not job.cancelled())
                raise
        return self.failures

    def run_cell(self, cell: Cell, threads: int, watch: Watch = never_stop) -> str:
        """Run one cell in a worker process; returns an error message, or an empty string. An error of its own must not
        end the other cells."""
        failure = stop_reason = ""
        try:
            failure, stop_reason = self._run_worker(cell, threads, watch)
        except (OSError, UserError) as error:  # no process or log file can be made
            failure = str(error)
        finally:
            self.running.pop(cell.name, None)
        outcome = cell.load_outcome()
        if outcome:
            self.show.end(cell.name, "  ".join(map(str, outcome.scores.values())))
            return ""
        if stop_reason:
            self.show.end(cell.name, stop_reason)
            return ""
        self.show.end(cell.name, STOPPED if self.stopping else f"failed: {failure}")
        return STOPPED if self.stopping else failure

    def _run_worker(self, cell: Cell, threads: int, watch: Watch) -> tuple[str, str]:
        """Why the worker failed, and why `watch` stopped it."""
        failure = stop_reason = ""
        with self._start(cell, threads) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(cell.model_dump_json() + "\n")
                process.stdin.flush()
            except BrokenPipeError:  # the process died at once; its exit status is reported below
                _close_stdin(process)  # what is left in the buffer would raise again
            self.running[cell.name] = process
            if self.stopping:  # started while the others were being stopped
                self._stop()
            self.show.update(cell.name, {"share": 0.0, "step": 0, "text": "starting"})
            for message in filter(None, map(parse_message, process.stdout)):
                if "failed" in message:
                    failure = message["failed"]
                    continue
                self.show.update(cell.name, message)
                if not stop_reason and (stop_reason := watch(message)):
                    _close_stdin(process)
            process.wait()
        return failure or f"its process ended with status {process.returncode}; see {cell.log}", stop_reason

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
        """Ask all workers to save a checkpoint and exit; kill those that do not."""
        self.stopping = True
        for process in list(self.running.values()):
            _close_stdin(process)
        killer = threading.Timer(STOP_SECONDS, self._kill)
        killer.daemon = True
        killer.start()

    def _kill(self) -> None:
        for process in list(self.running.values()):
            process.kill()

    @contextmanager
    def _kill_on_interrupt(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self._kill()


def parse_message(line: str) -> dict[str, Any]:
    """A message of a worker; empty if it is none: a killed process may leave half a line.

    >>> parse_message('{"failed": "no data"}'), parse_message('{"share": 0.5, "st')
    ({'failed': 'no data'}, {})
    """
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    known = isinstance(message, dict) and ("failed" in message or message.keys() >= {"share", "step", "text"})
    return message if known else {}


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does; in the main thread alone, which gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]  # nohup ignores SIGHUP
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _close_stdin(process: subprocess.Popen[str]) -> None:
    """Ask a worker to save a checkpoint and exit."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
