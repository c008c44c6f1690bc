"""`headwise new` writes files that work at once, and `headwise check` says what is wrong with parts."""

import json
import subprocess
import sys

import pytest

from headwise.cli.new import SETTINGS, render_template

LABELLED = """
[data]
train = "labels.tsv"
cache = "cache"
[tokeniser]
kind = "words"
[model]
kind = "bert-tiny"
[train]
steps = 4
batch_size = 8
threads = 1
"""


@pytest.fixture
def labels_file(tmp_path):
    """Few texts with labels, and an experiment that learns them."""
    rows = [f"{word} {other}\t{word}" for word in ("red", "blue", "green") for other in "abcdefgh"]
    (tmp_path / "labels.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "labels.toml").write_text('task = "classify"\n' + LABELLED)
    return "labels.toml"


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_template_passes_its_checks_and_trains(headwise, labels_file, kind):
    written = headwise("new", kind, "my_first")
    assert (written.status, written.out) == (0, "my_first.py\n")
    assert "headwise check my_first.py" in written.err
    checked = headwise("check", "my_first.py")
    assert checked.status == 0, checked.out
    assert "✓" in checked.out and "checks passed" in checked.out
    change = "model={kind='my_first', width=16, depth=2}" if kind == "model" else f"{SETTINGS[kind]}=my_first"
    trained = headwise("train", labels_file, "--set", change, "--with", "my_first.py")
    assert trained.status == 0, trained.err
    assert headwise("classify", "runs/labels", "red a", "--with", "my_first.py").status == 0


def test_templates_are_clean_code(tmp_path):
    for kind in SETTINGS:
        (tmp_path / f"{kind}.py").write_text(render_template(kind, "my_first"))
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--line-length", "120", str(tmp_path)]
    subprocess.run([*ruff, "check", "--select", "E,F,I,B,UP", *options], check=True, capture_output=True)
    subprocess.run([*ruff, "format", "--check", *options], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("mixer", "attention"), "attention: there is a part of this name already; choose another"),
        (("norm", "rms"), "rms: there is a norm of this name already"),
        (("position", "rotary"), "rotary: there is a position of this name already"),
        (("model", "gpt2"), "gpt2: there is a model of this name already"),
        (("task", "classify"), "classify: there is a task of this name already"),
        (("mixer", "two words"), "two words: is not a Python name; use letters, digits and _"),
        (("mixer", "class"), "class: is not a Python name"),
        (("mixer", "fine", "--out", "fine.txt"), "--out fine.txt: is not the name of a Python file"),
        (("mixer", "fine", "--out", "no/fine.py"), "no/fine.py: cannot be written"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(headwise, tmp_path, words, sentence):
    refused = headwise("new", *words)
    assert refused.status == 2 and f"headwise: {sentence}" in refused.err
    assert not list(tmp_path.glob("*.py"))


def test_a_file_is_never_overwritten(headwise, tmp_path):
    (tmp_path / "mine.py").write_text("mine")
    refused = headwise("new", "norm", "mine")
    assert refused.status == 2 and "mine.py: exists already; choose another name" in refused.err
    assert (tmp_path / "mine.py").read_text() == "mine"


LIAR = """
from typing import Literal
import torch
from headwise.blocks.norm import NormConfig
from headwise.blocks.part import PartConfig
from headwise.blocks.stream import Part, Properties
from headwise.blocks.tables import NORMS, PARTS
from headwise.train.schedules import SCHEDULES, ScheduleConfig


class Liar(Part):
    @property
    def properties(self):
        return Properties(causal=True)

    def transform(self, stream, ctx):
        return stream.x.flip(1) if stream.keep is None else stream.x / self.missing


@PARTS.add
class LiarConfig(PartConfig):
    kind: Literal["liar"] = "liar"

    def build(self, build_ctx):
        return Liar()


class Lazy(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(1, keepdim=True)


@NORMS.add
class LazyConfig(NormConfig):
    kind: Literal["lazy"] = "lazy"
    eps: float = 1.0

    def build(self, width):
        return Lazy()


@SCHEDULES.add
class SlowConfig(ScheduleConfig):
    kind: Literal["slow"] = "slow"
"""


def test_check_says_what_is_wrong_and_where(headwise, tmp_path):
    (tmp_path / "liar.py").write_text(LIAR)
    checked = headwise("check", "liar.py")
    assert checked.status == 1
    lines = [line.strip() for line in checked.out.splitlines()]
    assert "✓ Liar in an encoder: shape  keeps the shape of its inputs; gradients reach them" in lines
    assert any(line.startswith("✗ Liar in an encoder: causal  causal is claimed, but outputs before") for line in lines)
    raised = (
        "padding is claimed, but it raises AttributeError: 'Liar' object has no attribute 'missing' (liar.py, line 17)"
    )
    assert f"✗ Liar in an encoder: padding  {raised}" in lines
    assert any(line.startswith("✗ Lazy: by token  outputs have a gradient") for line in lines)
    assert any(line.startswith("✗ in a language model: causality") for line in lines)
    assert "✓ slow: schedule  there are no checks for a schedule" in lines
    assert lines[-1].endswith("failed")


def test_check_of_one_kind_as_json(headwise, tmp_path):
    (tmp_path / "liar.py").write_text(LIAR)
    checked = headwise("check", "liar.py", "slow", "--json")
    assert checked.status == 0
    (verdict,) = json.loads(checked.out)
    assert (verdict["kind"], verdict["check"], verdict["passed"]) == ("slow", "schedule", True)
    wrong = headwise("check", "liar.py", "lier")
    assert wrong.status == 2 and "liar.py: has no part 'lier'; did you mean liar?" in wrong.err
    (tmp_path / "empty.py").write_text("")
    assert "empty.py: adds no part; put a decorator" in headwise("check", "empty.py").err
