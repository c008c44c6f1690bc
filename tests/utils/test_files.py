"""What holds when the disk, the rights or the process give out."""

import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from headwise.errors import UserError
from headwise.runs import Run
from headwise.runs.checkpoint import Checkpoint, load_latest, save
from headwise.utils.files import apply_umask, atomic_folder, parse_toml, recover, write, writing

NOBODY = 65534
BIG = {"weight": torch.zeros(50_000)}


@pytest.fixture
def run(tmp_path):
    run = Run.create(tmp_path / "run", {})
    save(run, Checkpoint({"step": 1}, BIG))
    return run


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def powerless() -> Iterator[None]:
    """Rights do not bind root: act as somebody else."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def intact(run: Run) -> bool:
    found = load_latest(run)
    names = sorted(path.name for path in run.checkpoints.iterdir())
    return found is not None and found.step == 1 and names == ["step-1"] and run.read_pointer("last") == 1


@pytest.mark.parametrize("limit", [0, 300, 100_000, 200_010])
def test_a_file_that_cannot_grow_leaves_the_previous_checkpoint(run, limit):
    with small_files(limit), pytest.raises(UserError, match=r"cannot write .*step-2: File too large; raise the limit"):
        save(run, Checkpoint({"step": 2}, BIG))
    assert intact(run)


def test_a_folder_without_write_permission_is_named():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own cannot even be entered by nobody
        os.chmod(folder, 0o755)
        run = Run.create(Path(folder) / "run", {})
        save(run, Checkpoint({"step": 1}, BIG))
        run.checkpoints.chmod(0o555)
        with powerless(), pytest.raises(UserError, match=r"cannot write .*: Permission denied; choose a folder"):
            save(run, Checkpoint({"step": 2}, BIG))
        with powerless(), pytest.raises(UserError, match=r"cannot write .*new: Permission denied"):
            Run.create(run.checkpoints / "new", {})
        assert intact(run)
        run.checkpoints.chmod(0o755)


def test_a_full_disk_is_told_with_advice():
    full = Path("/dev/full")
    with pytest.raises(UserError, match=r"/dev/full: No space left on device; free some space"), writing(full):
        full.write_bytes(b"1")


def test_a_row_of_which_only_a_part_fits_is_an_error(run):
    with small_files(10), pytest.raises(UserError, match=r"metrics.jsonl: File too large"):
        run.metrics.append({"step": 1, "loss": 0.123456789})
    assert run.metrics.rows() == []


def test_a_run_that_cannot_be_created_leaves_nothing(tmp_path):
    with small_files(10), pytest.raises(UserError, match="File too large"):
        Run.create(tmp_path / "new", {"key": "value" * 10})
    assert list(tmp_path.iterdir()) == []


def test_a_small_file_is_replaced_or_left_as_it_was(tmp_path):
    path = tmp_path / "last"
    write(path, "step-1")
    with small_files(3), pytest.raises(UserError):
        write(path, "step-2" * 10)
    assert [file.name for file in tmp_path.iterdir()] == ["last"]
    assert path.read_text() == "step-1"


@pytest.mark.parametrize("stage", ["fsync", "rename", "replace"])
def test_a_replacement_broken_off_anywhere_is_undone(tmp_path, stage):
    target, after = tmp_path / "step-1", tmp_path / "after"
    with atomic_folder(target) as aside:
        (aside / "a").write_text("old")

    def freeze(name: str) -> None:  # what a kill at this moment leaves on the disk
        if name == stage:
            shutil.copytree(tmp_path, after, ignore=shutil.ignore_patterns("after"))

    with atomic_folder(target, freeze) as aside:
        (aside / "a").write_text("new")
    recover(after)
    assert (after / "step-1" / "a").read_text() == "old"
    assert [path.name for path in after.iterdir()] == ["step-1"]
    assert (target / "a").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after", "step-1"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_file_gets_the_mode_of_any_new_file(umask: int, mode: int, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.touch(0o600)
    before = os.umask(umask)
    try:
        apply_umask(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert list(tmp_path.iterdir()) == [path]


DEEP_TOML = {
    "a key of many parts": ".".join("a" * 30_000) + " = 1",
    "a quoted key of many parts": '"a".' * 30_000 + "a = 1",
    "a table of many parts": "[" + ".".join("a" * 30_000) + "]\nb = 1",
    "lists": "a = " + "[" * 200 + "]" * 200,
    "many lists": "a = " + "[" * 60_000,
    "inline tables": "a = " + "{b = " * 150 + "1" + "}" * 150,
}


@pytest.mark.parametrize("text", DEEP_TOML.values(), ids=DEEP_TOML)
def test_deep_toml_is_refused_at_once(text):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml(text)


def test_long_texts_and_words_are_no_deep_toml():
    assert parse_toml(f'a = "{"x" * 10**6}"\n{"b" * 10**5} = 1')["a"] == "x" * 10**6
    assert parse_toml("[a.b.c.d]\ne.f = [[1, {g = 2}]]") == {"a": {"b": {"c": {"d": {"e": {"f": [[1, {"g": 2}]]}}}}}}
