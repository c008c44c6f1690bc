"""Processes that are killed: all begin again from the last checkpoint, and end with the same bits."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwise.runs import Run

COMMAND = [sys.executable, "-m", "headwise", "train", "exp.toml", "--processes", "2"]
EXPERIMENT = """
[data]
train = "pairs.tsv"
[model]
kind = "transformer"
width = 16
heads = 2
depth = 1
[train]
steps = 300
batch_size = 8
checkpoint_every = 20
validate_every = 1000
samples = 0
"""


def find_workers(launcher: int) -> list[int]:
    """The processes that a launcher has started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
    return [number for number, parent in parents.items() if parent == launcher]


@pytest.mark.distributed
def test_killed_processes_begin_again_and_end_with_the_same_bits(tmp_path, same_run):
    same_run.write_data(tmp_path)
    (tmp_path / "exp.toml").write_text(EXPERIMENT, encoding="utf-8")
    subprocess.run([*COMMAND, "--runs", "whole"], cwd=tmp_path, check=True, timeout=300)
    draw = random.Random(0)
    launcher = subprocess.Popen([*COMMAND, "--runs", "killed"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for kill in range(3):
        while not (steps := Run(tmp_path / "killed" / "exp").steps()) or steps[-1] < 80 * kill + 20:
            time.sleep(0.05)
        time.sleep(draw.random())
        os.kill(draw.choice(find_workers(launcher.pid)), signal.SIGKILL)
    errors = launcher.communicate(timeout=300)[1]
    assert launcher.returncode == 0, errors
    assert errors.count("was killed by SIGKILL; starting all again") == 3
    assert "Traceback" not in errors
    for name in ("model", "optimizer"):
        one, other = (
            (tmp_path / runs / "exp" / "checkpoints" / "step-300" / f"{name}.safetensors").read_bytes()
            for runs in ("whole", "killed")
        )
        assert one == other
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["exp"]
