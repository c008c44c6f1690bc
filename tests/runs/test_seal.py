"""The manifest of a run itself: damage of what it is rebuilt from is found before it is used."""

from pathlib import Path

import pytest

from headwise.errors import UserError
from headwise.runs import Run
from headwise.runs.data_record import write_record
from headwise.runs.run import SEALED


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "run", {"task": "transduce", "seed": 1})
    run.tokenizer.write_text('{"vocabulary": ["a", "b"]}')
    write_record(run, tmp_path, [])
    run.seal()
    return run


@pytest.mark.parametrize("name", SEALED)
def test_a_flipped_bit_is_found(run, name):
    run.verify()
    content = bytearray((run.path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run.path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name} is damaged: it differs from manifest.json .*; restore a"):
        run.verify()


@pytest.mark.parametrize("name", SEALED)
def test_a_missing_file_is_found(run, name):
    (run.path / name).unlink()
    with pytest.raises(UserError, match=f"{name} is damaged: it cannot be read"):
        run.verify()


def test_what_headwise_changes_is_sealed_again(run, tmp_path):
    run.write_config({"task": "transduce", "seed": 2})
    write_record(run, tmp_path / "elsewhere", [])
    run.verify()
    assert run.config["seed"] == 2


def test_a_process_that_is_killed_while_it_changes_a_file_leaves_a_usable_run(run):
    changing = run.changing()
    changing.__enter__()  # and never leave
    (run.path / "config.toml").write_text("seed = 3\n")
    run.verify()
    assert run.config == {"seed": 3}


def test_a_run_without_a_manifest_is_not_checked(run):
    (run.path / "manifest.json").unlink()
    (run.path / "config.toml").write_text("seed = 4\n")
    run.verify()
    run.write_config({"seed": 5})
    assert not (run.path / "manifest.json").exists()


def test_a_manifest_that_was_changed_is_damage(run):
    (run.path / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        run.verify()
