import subprocess
import sys

import pytest

from headwise.errors import UserError
from headwise.runs import Run, find_runs, summarize_run
from headwise.runs.checkpoint import Checkpoint, save
from headwise.train.config import TrainConfig

CONFIG = TrainConfig(steps=3)


def test_a_run_remembers_its_config_and_where_it_was_made(tmp_path):
    run = Run.create(tmp_path / "deep" / "run", CONFIG.model_dump(mode="json"))
    again = Run.open(run.path)
    assert TrainConfig(**again.config) == CONFIG
    assert {"torch", "headwise", "python"} <= again.info["versions"].keys()


def test_names_are_never_taken_twice(tmp_path):
    names = [Run.create_unique(tmp_path, "words", {}).name for _ in range(3)]
    assert names == ["words", "words-2", "words-3"]
    with pytest.raises(UserError, match="exists already"):
        Run.create(tmp_path / "words", {})


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"not a run: it has no config\.toml"):
        Run.open(tmp_path)


def test_a_run_has_one_writer(tmp_path):
    run = Run.create(tmp_path / "run", {})
    second = f"from headwise.runs import Run\nwith Run.open({str(run.path)!r}).lock(): print('mine')"
    with run.lock():
        assert run.busy
        refused = subprocess.run([sys.executable, "-c", second], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "is being trained by process" in refused.stderr
    assert not run.busy
    assert subprocess.run([sys.executable, "-c", second], capture_output=True, text=True).stdout == "mine\n"


def test_an_error_inside_the_lock_is_passed_on_unchanged(tmp_path):
    run = Run.create(tmp_path / "run", {})
    with pytest.raises(FileNotFoundError), run.lock():
        (tmp_path / "missing").read_text()


def test_runs_are_listed_with_what_they_reached(tmp_path):
    first, second = Run.create(tmp_path / "a", {}), Run.create(tmp_path / "b", {})
    (tmp_path / "no run").mkdir()
    best = {"name": "ser", "value": 0.25, "step": 40}
    save(first, Checkpoint({"step": 40, "epoch": 2, "minutes": 1.5, "best": best}, {}))
    rows = {row.name: row for row in map(summarize_run, find_runs(tmp_path))}
    assert list(rows) == ["a", "b"]
    assert (rows["a"].steps, rows["a"].epochs, rows["a"].minutes) == (40, 2, 1.5)
    assert (rows["a"].score, rows["a"].best) == ("ser", 0.25)
    assert (rows["b"].steps, rows["b"].best, rows["b"].busy) == (0, None, False)
    assert second.state == {}


def test_looking_at_runs_does_not_load_torch():
    code = "import sys, headwise.runs, headwise.train.config; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
