"""Parts files: imported once, refused with a sentence, never half-added, and known through installed packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.tables import PARTS
from headwise.config.plugins import list_parts_files, take_options, use_parts

HEAD = """
from typing import Literal
import torch
from torch import nn
from headwise.blocks.part import PartConfig
from headwise.blocks.stream import Part, Properties
from headwise.blocks.tables import PARTS
"""
PART = """
class Mine(Part):
    @property
    def properties(self):
        return Properties(causal=True, steppable=True)

    def transform(self, stream, ctx):
        return stream.x
"""
CONFIG = """
@PARTS.add
class MineConfig(PartConfig):
    kind: Literal["mine"] = "mine"

    def build(self, build_ctx):
        return Mine()
"""
GOOD = HEAD + PART + CONFIG


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "mine.py") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def build(kind: str = "mine"):
    return headwise.build("gpt2-tiny", vocab=20, mixer=kind)


IN_BUILDING = {
    r"mine: .*Mine\.transform\(self, x\): write transform\(self, stream, ctx\)": PART.replace("stream, ctx", "x"),
    "properties of Mine is not a property .* write @property above it": PART.replace("    @property\n", ""),
    r"mine: MineConfig\.build returns Mine, which is not a Part; subclass": PART.replace("(Part)", "(nn.Module)"),
    r"Mine turns inputs of \(2, 5, 32\) into outputs of \(2, 1, 32\); return": PART.replace(
        "stream.x", "stream.x[:, :1]"
    ),
    "Mine claims causal=True, but its outputs change by .* with later tokens; do not read these, or": PART.replace(
        "stream.x", "stream.x - stream.x.mean(1, keepdim=True)"
    ),
    "Mine returns tuple; return a tensor": PART.replace("stream.x", "stream.x, None"),
    r"build fails: TypeError: .*abstract.* \(mine\.py, line \d+\)": PART.replace("transform", "forward"),
}


@pytest.mark.parametrize("sentence", IN_BUILDING)
def test_a_mistake_in_a_part_is_one_sentence(write, sentence: str) -> None:
    use_parts(write(HEAD + IN_BUILDING[sentence] + CONFIG))
    with pytest.raises(UserError, match=sentence) as caught:
        build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (CONFIG.replace("return Mine()", "Mine()"), r"mine: MineConfig\.build returns nothing; return"),
        (
            CONFIG.replace("(self, build_ctx)", "(self)"),
            r"MineConfig\.build\(self\): takes other arguments .*; write build\(self, \w+\)",
        ),
    ],
)
def test_a_mistake_in_a_build_method_is_one_sentence(write, config: str, sentence: str) -> None:
    use_parts(write(HEAD + PART + config))
    with pytest.raises(UserError, match=sentence):
        build()


IN_FILES = {
    "there is a part 'attention' already; choose another kind": GOOD.replace('"mine"', '"attention"'),
    "Mine: is not a config; add a config class": HEAD + "@PARTS.add" + PART,
    "MineConfig: has no kind; write": GOOD.replace('    kind: Literal["mine"] = "mine"\n', ""),
    r"is not valid Python in line 1": "def (",
    r"cannot be imported: ZeroDivisionError: division by zero \(mine\.py, line \d+\)": GOOD + "1 / 0",
    "imports helpers, which is beside it, but a run keeps one file": "import helpers\n" + GOOD,
    r"imports \.helpers, which is beside it": GOOD.replace("return Mine()", "from .helpers import x"),
}


@pytest.mark.parametrize("sentence", IN_FILES)
def test_a_file_that_cannot_be_used_leaves_nothing(write, sentence: str) -> None:
    write("", "helpers.py")
    with pytest.raises(UserError, match=sentence) as caught:
        use_parts(write(IN_FILES[sentence]))
    assert "mine.py: " in str(caught.value) and "\n" not in str(caught.value)
    assert "mine" not in PARTS and not list_parts_files()
    assert PARTS["attention"].__module__ == "headwise.blocks.attention.multihead"


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    for name, sentence in {
        "no.py": "there is no such file",
        "no.txt": "must end in .py",
    }.items():
        with pytest.raises(UserError, match=sentence):
            use_parts(tmp_path / name)


def test_outputs_are_checked_once_per_stack_and_on_a_copy(write) -> None:
    counting = PART.replace("return stream.x", "CALLS.append(self); return stream.x + 0 * torch.rand(1)")
    use_parts(write(HEAD + "CALLS = []\n" + counting + CONFIG))
    torch.manual_seed(3)
    model = headwise.build("gpt2-tiny", vocab=20, mixer="mine", depth=4)
    after = torch.rand(1)
    calls = sys.modules[list_parts_files()[0].module].CALLS
    assert len(calls) == 2  # with two ends of the text, as it claims to be causal
    assert calls[0] is calls[1] and calls[0] not in list(model.modules())
    torch.manual_seed(3)
    use_parts(write(GOOD))
    headwise.build("gpt2-tiny", vocab=20, mixer="mine", depth=4)
    assert torch.equal(after, torch.rand(1))  # the trial takes no random numbers


def test_a_part_that_cannot_run_on_a_few_tokens_is_built(write) -> None:
    use_parts(write(HEAD + PART.replace("return stream.x", "return stream.x * stream.grid[0]") + CONFIG))
    build()


def test_the_same_file_is_imported_once_and_a_changed_one_again(write) -> None:
    use_parts(write(GOOD))
    first = PARTS["mine"]
    use_parts(write(GOOD), write(GOOD, "copy.py"))
    assert PARTS["mine"] is first and len(list_parts_files()) == 1
    use_parts(write(GOOD.replace("    def build", "    speed: int = 2\n\n    def build")))
    assert PARTS.parse("mine").speed == 2 and len(list_parts_files()) == 1  # type: ignore[attr-defined]


def test_two_files_cannot_have_the_same_kind(write) -> None:
    use_parts(write(GOOD))
    with pytest.raises(UserError, match=r"other\.py: MineConfig: there is a part 'mine' already"):
        use_parts(write(GOOD + "\n# another\n", "other.py"))
    assert PARTS["mine"].__module__ == list_parts_files()[0].module


def test_a_class_that_is_defined_again_replaces_itself() -> None:
    """As a cell of a notebook that is run twice."""
    namespace = {"__name__": "__main__"}
    exec(GOOD, namespace)
    first = PARTS["mine"]
    exec(GOOD, namespace)
    assert PARTS["mine"] is namespace["MineConfig"] is not first
    PARTS.loaded.pop("mine")


def test_options_are_taken_wherever_they_are(write) -> None:
    file = str(write(GOOD))
    assert take_options(["--with", file, "train", "--trust", "x", "--", "--with", "y"]) == [
        "train",
        "x",
        "--",
        "--with",
        "y",
    ]
    assert take_options([f"--with={file}"]) == []
    with pytest.raises(UserError, match="--with: name a Python file"):
        take_options(["train", "--with"])


def test_an_installed_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "packaged.py").write_text(GOOD.replace('"mine"', '"packaged"'))
    info = tmp_path / "packaged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[headwise.parts]\npackaged = packaged\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from headwise.cli.main import main\n"
        "main(['show', 'gpt2-tiny', '--set', 'mixer=packaged'])\n"
        "import headwise; print(headwise.build('gpt2-tiny', mixer='packaged'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Mine()" in done.stdout
