"""A run keeps a copy of its parts file; its code runs only if it is trusted."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
import torch

import headwise
from headwise import UserError
from headwise.config.plugins import forget_parts, list_parts_files, use_parts
from headwise.experiment.config import Experiment, parse_experiment
from headwise.inference.trained_model import TrainedModel
from headwise.runs import summarize_run
from headwise.runs.run import Run
from headwise.studio.run_registry import RunFolder
from headwise.studio.workspace import load_model
from headwise.testing import assert_parity
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

PARTS_FILE = """
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from headwise.blocks.part import PartConfig
from headwise.blocks.stream import Part, Properties
from headwise.blocks.tables import PARTS

Path("MARKER").write_text("this code was executed")


class Shift(Part):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    @property
    def properties(self):
        return Properties(causal=True, steppable=True, packing=True, joins=True, ragged=True)

    def transform(self, stream, ctx):
        return stream.x + self.bias


@PARTS.add
class ShiftConfig(PartConfig):
    kind: Literal["shift"] = "shift"

    def build(self, build_ctx):
        return Shift(build_ctx.width)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with parts of its own, which nobody has imported any more."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shift.py").write_text(PARTS_FILE)
    use_parts("shift.py")
    save_run("runs/own", "shift")
    save_run("runs/plain", "attention")
    forget()
    return tmp_path / "runs" / "own"


def save_run(path: str, mixer: str) -> None:
    tables = {"task": "language-model", "model": {"kind": "gpt2-tiny", "mixer": mixer}}
    experiment = Experiment.model_validate({**tables, "data": {"train": "none.txt"}, "train": {"steps": 1}})
    letters = Characters("abcdefgh")
    tokenisers = Tokenisers(letters, letters)
    torch.manual_seed(0)
    model = experiment.create_task(tokenisers).build(experiment.model).eval()
    TrainedModel(model, tokenisers, experiment).save(path)


def forget() -> None:
    """As a new process begins."""
    for parts in list_parts_files():
        forget_parts(parts)
    Path("MARKER").unlink(missing_ok=True)


def test_a_run_keeps_the_file_with_its_hash_where_it_needs_one(run: Path) -> None:
    assert (run / "parts" / "shift.py").read_text() == PARTS_FILE
    manifest = json.loads((run / "parts" / "manifest.json").read_text())["files"]
    assert len(manifest["shift.py"]["sha256"]) == 64
    assert not (run.parent / "plain" / "parts").exists()


def test_its_code_is_not_executed_by_itself(run: Path) -> None:
    sentence = (
        r"own: needs the code of its own parts, which is not executed unless you trust it; read .*parts/shift\.py"
    )
    for use in (headwise.load, headwise.resume, lambda path: load_model(RunFolder("own", path)), load_and_tune):
        with pytest.raises(UserError, match=sentence):
            use(run)
    summarize_run(Run.open(run))
    assert RunFolder("own", run).to_dict()["ready"]
    assert not Path("MARKER").exists() and not list_parts_files()


def load_and_tune(path: Path) -> None:
    tables = {"task": "language-model", "data": {"train": "none.txt"}, "train": {"steps": 1}}
    parse_experiment({**tables, "init_from": str(path)})


def test_it_is_executed_when_trusted(run: Path) -> None:
    assert headwise.load(run, trust=True).model.decoder.stack.layers[0].parts[0].bias.shape == (32,)
    assert Path("MARKER").exists()
    assert [parts.path for parts in list_parts_files()] == [run / "parts" / "shift.py"]


def test_the_users_own_file_of_the_same_contents_is_trust(run: Path) -> None:
    use_parts("shift.py")
    shutil.move("shift.py", "elsewhere.py")
    headwise.load(run)
    assert [parts.path.name for parts in list_parts_files()] == ["shift.py"]


def test_a_changed_file_is_refused_until_it_is_trusted(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    Path("shift.py").write_text(PARTS_FILE + "\nCHANGED = True\n")
    use_parts("shift.py")
    with pytest.raises(UserError, match=r"another version of shift\.py than yours; use its copy, --with .*, or add"):
        headwise.load(run)
    headwise.load(run, trust=True)
    assert "was trained with another version of shift.py; yours is used" in caplog.text
    assert len(list_parts_files()) == 1


def test_the_copy_goes_on_with_what_is_saved_and_exported(run: Path) -> None:
    loaded = headwise.load(run, trust=True)
    loaded.save("runs/again")
    assert "its architectures" not in headwise.to_hf(loaded, "folder")
    forget()
    for folder in ("runs/again", "folder"):
        with pytest.raises(UserError, match="not executed unless you trust it"):
            headwise.load(folder)
        assert not Path("MARKER").exists()
        again = headwise.load(folder, trust=True)
        ids = torch.tensor([[4, 5, 6]])
        assert_parity(again.model(ids), loaded.model(ids))
        forget()


def test_a_copy_that_was_tampered_with_is_refused(run: Path) -> None:
    (run / "parts" / "shift.py").write_text(PARTS_FILE + "\n")
    with pytest.raises(UserError, match=r"shift\.py: differs from what the run wrote; restore a copy"):
        headwise.load(run, trust=True)
    assert not Path("MARKER").exists()


def test_the_file_that_it_was_trained_with_is_used_instead_of_an_altered_copy(run: Path) -> None:
    (run / "parts" / "shift.py").write_text("raise SystemExit('altered')\n")
    Path("mine.py").write_text(PARTS_FILE)
    use_parts("mine.py")
    assert type(headwise.load(run).model).__name__
    Path("mine.py").write_text(PARTS_FILE + "\n")
    use_parts("mine.py")
    with pytest.raises(UserError, match=r"shift\.py: differs from what the run wrote; restore a copy of .*--with"):
        headwise.load(run)


@pytest.mark.parametrize("name", ["../../../shift.py", "shift.txt"])
def test_a_manifest_cannot_name_files_elsewhere(run: Path, name: str) -> None:
    """Even one whose hashes are right: anybody can write a manifest."""
    copy = (run / "parts" / "shift.py").rename(run / "parts" / "shift.txt")
    files = {name: {"bytes": copy.stat().st_size, "sha256": sha256(copy.read_bytes()).hexdigest()}}
    digest = sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    text = json.dumps({"files": files, "sha256": digest}, sort_keys=True, indent=1) + "\n"
    (run / "parts" / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json: differs from what the run wrote"):
        headwise.load(run, trust=True)
    assert not Path("MARKER").exists()


def test_a_run_whose_part_is_nowhere_says_so(run: Path) -> None:
    shutil.rmtree(run / "parts")
    with pytest.raises(UserError, match=r"no part is called 'shift'; .*; if it is your own, name its file with --with"):
        headwise.load(run)
