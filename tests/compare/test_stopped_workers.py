"""Workers that are killed, hang or write nonsense, and a command that is stopped: what finished is printed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from headwise.compare.cell import build_cells
from headwise.compare.progress import Bars, Lines
from headwise.compare.run import STOPPED, WorkerPool

ENDLESS = '[[arm]]\nname = "endless"\nset = { "train.steps" = 1000000, "train.log_every" = 1 }\n'


class ScriptPool(WorkerPool):
    """Its workers are shell scripts."""

    script = ""

    def _start(self, cell, threads):
        process = subprocess.Popen(["sh", "-c", self.script], stdin=-1, stdout=-1, text=True)
        if "read" not in self.script:
            while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                time.sleep(0.01)  # nobody will read its stdin
        return process


@pytest.fixture
def cell(config, tmp_path):
    return next(iter(build_cells(config, tmp_path)))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "status 3"),  # before it reads the cell
        ('read -r cell; echo Warning: stray; printf \'{"share": 0.5, "st\'; kill -9 $$', "status -9"),
        ("read -r cell; echo '{\"failed\": \"no data\"}'; echo '[1]'; exit 1", "no data"),
        ("read -r cell; (sleep 0.2; kill -STOP $$; sleep 0.2; kill -9 $$) > /dev/null & read -r end", "status -9"),
    ],
)
def test_a_worker_that_dies_is_a_failed_cell(cell, script, message, capsys):
    pool = ScriptPool(1, Lines())
    pool.script = script
    failures = pool.run([cell])
    assert list(failures) == [cell.name] and message in failures[cell.name] and not pool.running
    assert f"{cell.name}: failed: " in capsys.readouterr().err


def test_a_log_that_cannot_be_written_is_a_failed_cell(config, tmp_path):
    (tmp_path / "small").write_text("a file where the folder of the runs should be")
    first, second = list(build_cells(config.select(seeds=[1]), tmp_path))
    failures = WorkerPool(2, Lines()).run([first, second])
    assert all("small" in failures[cell.name] for cell in (first, second))


def test_progress_survives_a_closed_stderr_and_a_cell_that_never_started(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        Lines().end("cell", "failed")
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            print("cell", file=closed, flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)  # its buffer can be written
    Bars().end("cell", "failed")


@pytest.mark.usefixtures("result")  # the arm "pre" has finished
def test_a_stopped_command_prints_what_finished_even_if_a_worker_hangs(table, runs, tmp_path):
    file = tmp_path / "small.toml"
    text = table.read_text()
    file.write_text(text.replace("[[published]]", f"{ENDLESS}[[published]]"))
    options = ["--arm", "pre", "--arm", "endless", "--seeds", "1", "--jobs", "1", "--runs", str(runs)]
    command = [sys.executable, "-m", "headwise", "compare", str(file), *options]
    metrics = runs / "small" / "endless-1" / "metrics.jsonl"
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        try:
            wait_for(lambda: metrics.is_file() and metrics.stat().st_size)
            (worker,) = list_children(process.pid)
            os.kill(worker, signal.SIGSTOP)  # it cannot save a checkpoint
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.send_signal(signal.SIGTERM)  # the second signal kills it
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130 and "Traceback" not in err, err
    assert f"endless, seed 1 failed: {STOPPED}" in out and "0 of 1" in out
    pre = next(line for line in out.splitlines() if line.strip().startswith("pre"))
    assert "±" in pre, "the finished arm has its scores"
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def list_children(parent):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True)
    pairs = (map(int, line.split()) for line in listed.stdout.splitlines())
    return [pid for pid, ppid in pairs if ppid == parent]


def wait_for(done, seconds=120):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)
