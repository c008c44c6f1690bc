"""One model trained by several processes: the same losses and weights as by one. Real processes, on loopback."""

import os
import subprocess
import sys

import pytest

TASKS = ["language-model", "masked", "tagging", "recurrent", "experts", "images", "detection"]
COMMAND = [sys.executable, "-m", "headwise", "train"]


def compare(folder, same_run, name, sizes):
    for size in sizes:
        losses, weights = same_run.measure_difference(folder / name, size)
        assert losses < 1e-9
        assert weights < 1e-6  # the scale of clipping is a float32


def test_any_number_of_processes_trains_the_same_model(tmp_path, same_run):
    """In float64, with accumulation, clipping and an average of the weights; also where the last batch of an epoch has
    fewer rows than there are processes."""
    same_run.write_data(tmp_path)
    chosen = {"translation": same_run.describe_experiments(tmp_path)["translation"]}
    same_run.train_all(tmp_path, chosen, [1, 2, 3], steps=8, accumulate=2, ema=0.9)
    compare(tmp_path, same_run, "translation", (2, 3))


def test_processes_that_differ_are_refused_by_one_of_them(tmp_path, same_run):
    same_run.write_data(tmp_path)
    (tmp_path / "exp.toml").write_text('[data]\ntrain = "pairs.tsv"\n[train]\nsteps = 3\n', encoding="utf-8")
    (port,) = same_run.find_ports(1)
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    workers = [
        subprocess.Popen(
            [*COMMAND, "exp.toml", "--set", f"train.steps={steps}"],
            **{"cwd": tmp_path, "env": {**os.environ, **meeting, "RANK": str(rank)}},
            **{"stderr": subprocess.PIPE, "text": True},
        )
        for rank, steps in enumerate((3, 4))
    ]
    errors = "".join(worker.communicate(timeout=100)[1] for worker in workers)
    assert workers[0].returncode == 2
    assert workers[1].returncode > 0  # 1 if it notices first that the other one has gone
    assert errors.startswith("headwise: the processes differ: train.steps is 3 in process 0 (")
    assert errors.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.distributed
@pytest.mark.parametrize("name", ["translation", *TASKS])
def test_every_task_trains_the_same_model(tmp_path, same_run, name):
    same_run.write_data(tmp_path)
    chosen = {name: same_run.describe_experiments(tmp_path)[name]}
    same_run.train_all(tmp_path, chosen, [1, 2, 3, 4], steps=50)
    compare(tmp_path, same_run, name, (2, 3, 4))
