"""Cells are trained once, resumed where they were killed, and reported where they fail."""

import os
import signal
import subprocess
import sys
import time

import pytest

from headwise.compare.cell import build_cells
from headwise.compare.estimate import estimate_difference
from headwise.compare.run import WorkerPool, compare
from headwise.compare.worker import run_cell
from headwise.errors import UserError


class Silent:
    """A board that remembers which cells told something."""

    def __init__(self, act=lambda cell, message: None):
        self.cells, self.act = set(), act

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def update(self, cell, message):
        self.cells.add(cell)
        self.act(cell, message)

    def end(self, cell, text):
        pass


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def values(comparison):
    return {
        (arm.name, seed, score.name): score.value
        for arm in comparison.arms.values()
        for seed, outcome in arm.outcomes.items()
        for score in outcome.scores.values()
    }


def test_an_outcome_tells_all_figures_of_its_run(result, runs):
    outcome = result.arms["pre"].outcomes[1]
    assert set(outcome.scores) == {"SER", "CER", "perplexity"}
    assert outcome.parameters > 10_000 and outcome.flops_per_token > 10_000
    assert outcome.tokens_per_second > 0 and 0 < outcome.minutes < 2
    assert outcome.run == runs / "small" / "pre-1" and outcome.items.is_file()
    assert (result.score, result.lower) == ("SER", True)


def test_a_second_call_costs_nothing(result, config, runs):
    before, board = stamps(runs), Silent()
    again = compare(config.select(seeds=[1]), runs, show=board)
    assert again == result and not board.cells and stamps(runs) == before


def test_runs_of_before_a_setting_came_are_used_and_those_of_another_default_are_not(result, config, runs):
    cell = next(iter(build_cells(config, runs)))
    file = cell.find_run().path / "config.toml"
    written = file.read_text()
    line = next(line for line in written.splitlines() if line.startswith("checkpoint_every"))
    for edited, state in (
        (written.replace(line, ""), "done"),
        (written.replace(line, "checkpoint_every = 77"), "to train"),
        (written.replace(line, "checkpoint_every = "), "to train"),
        (written, "done"),
    ):
        file.write_text(edited)
        assert cell.describe_state() == state


def test_a_changed_arm_runs_alone_and_a_failing_one_stops_nobody(result, config, runs):
    changed = config.arm[1].replace(set={"model.wiring": "pre", "train.schedule.lr": 0.01})
    broken = config.arm[1].replace(name="broken", set={"data.train": "nowhere.tsv"})
    table = config.replace(arm=(config.arm[0], broken, changed), seeds=(1,))
    listed = {cell.name: cell for cell in build_cells(table, runs)}
    assert [cell.describe_state() for cell in listed.values()] == ["done", "to train", "to train"]
    board, before = Silent(), stamps(runs / "small" / "pre-1")
    run_cell(listed["pre-1"], lambda message: None)
    again = compare(table, runs, show=board)
    assert board.cells == {"broken-1"}
    assert again.arms["post norm"] == result.arms["post norm"]
    assert again.arms["pre"].outcomes[1].run == runs / "small" / "pre-1-2", "the earlier run is not overwritten"
    assert stamps(runs / "small" / "pre-1") == before
    assert "nowhere.tsv" in again.arms["broken"].failures[1] and not again.arms["broken"].outcomes
    assert estimate_difference(again, "broken", "pre", "SER") is None


def test_two_at_once_one_killed_and_resumed_end_as_one_after_the_other(result, config, tmp_path):
    careful = config.replace(changes={"train": {"checkpoint_every": 4}}).select(seeds=[1])
    post, pre = build_cells(careful, tmp_path)
    pool = WorkerPool(2, Silent())

    def kill(name, message):
        """Kill the second cell's process as soon as it has a checkpoint."""
        if name == pre.name:
            while not (pre.find_run() and pre.find_run().steps()):
                time.sleep(0.01)
            os.kill(pool.running[name].pid, signal.SIGKILL)

    pool.show.act = kill
    failures = pool.run([post, pre])
    assert list(failures) == ["pre-1"] and "status -9" in failures["pre-1"]
    assert post.load_outcome() and not pre.load_outcome()
    assert pre.describe_state() == f"resumes at step {pre.find_run().state['step']}"
    run_cell(pre, lambda message: None)
    assert pre.load_outcome().run == tmp_path / "small" / "pre-1"
    assert values(compare(careful, tmp_path)) == values(result)


def test_workers_end_when_the_command_is_killed(tmp_path):
    """A comparison in its own process, killed while two workers train."""
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in ("abc", "bca", "cab", "ba") * 9))
    (tmp_path / "table.toml").write_text(
        'seeds = [1, 2]\n[experiment.data]\ntrain = "pairs.tsv"\ncache = "cache"\n'
        '[experiment.tokeniser]\nkind = "characters"\n[experiment.model]\nkind = "transformer-tiny"\n'
        '[experiment.train]\nsteps = 1000000\nthreads = 1\nlog_every = 1\n[[arm]]\nname = "one"\n'
    )
    command = [sys.executable, "-m", "headwise", "compare", "table.toml", "--jobs", "2"]
    rows = [tmp_path / f"runs/compare/table/one-{seed}/metrics.jsonl" for seed in (1, 2)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            assert wait_for(lambda: all(file.is_file() and file.stat().st_size for file in rows), 120)
            workers = list_children(process.pid)
            assert len(workers) == 2
        finally:
            process.kill()
    assert wait_for(lambda: not any(is_alive(pid) for pid in workers), 60)
    assert all(list((file.parent / "checkpoints").iterdir()) for file in rows)  # they have saved what they had


def list_children(parent: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True)
    pairs = (map(int, line.split()) for line in listed.stdout.splitlines())
    return [pid for pid, ppid in pairs if ppid == parent]


def wait_for(done, seconds):
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.1)
    return done()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_ends_when_its_parent_is_gone(config, tmp_path):
    (cell,) = build_cells(config.replace(changes={"train": {"steps": 10**6}}).select(["pre"], [1]), tmp_path)
    command = [sys.executable, "-m", "headwise.compare.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write(cell.model_dump_json() + "\n")
        process.stdin.flush()
        process.stdout.readline()  # it trains
        process.stdin.close()
        assert process.wait(20) == 0
    assert cell.find_run().steps() and cell.describe_state().startswith("resumes at step")


def test_a_score_that_nobody_reports_names_the_others(result):
    with pytest.raises(UserError, match="no arm reports 'SRE'; did you mean SER"):
        result.rank_by("SRE")
    assert (result.rank_by("perplexity").lower, result.rank_by("CER", lower=False).lower) == (True, False)
