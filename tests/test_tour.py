"""The guided tour of the ancestors: all commands of the page run in order, on budgets cut to the bone."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.cli.main import main
from headwise.compare.cell import build_cells
from headwise.compare.config import ComparisonConfig
from headwise.compare.worker import run_cell

PAGE = Path(__file__).parents[1] / "docs/from-n-grams-to-attention.md"
CUTS = {r"WORDS = [\d_]+": "WORDS = 1_000", r"\bsteps = \d+": "steps = 2", r"epochs = 20": "epochs = 1"}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*(?:(?<=\\)\n.*)*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)  # and what it printed


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("HEADWISE_DATA", raising=False)
    return tmp_path


def test_every_command_of_the_tour_runs(folder, capsys):
    ran = 0
    for language, body in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language != "console":
            name = body.removeprefix("# ").split("\n", 1)[0]
            (folder / name).write_text(shortened(body), encoding="utf-8")
            continue
        for command, shown in COMMAND.findall(body):
            printed = run(shlex.split(command.replace("\\\n", "")), capsys)
            for file in re.findall(r"runs/[\w-]+|\S+\.(?:svg|txt|tsv)", command):
                assert (folder / file).exists(), f"{command}: no {file}"
            if " evaluate " in command:
                assert first_words(printed) == first_words(shown), command
            ran += 1
    assert ran > 30


def run(arguments, capsys) -> str:
    """What a command prints. Those of Headwise run in this process, which has torch already."""
    program, *rest = arguments
    if program == "python":
        return subprocess.run([sys.executable, *rest], check=True, capture_output=True, text=True).stdout
    assert program == "headwise"
    if rest[0] == "compare":
        train_all_but_one(Path(rest[1]))
    capsys.readouterr()
    main(rest)  # a failure is a SystemExit
    return capsys.readouterr().out


def train_all_but_one(table: Path) -> None:
    """Train the runs of a comparison in this process; the last one is left to a process of the command."""
    *cells, _ = build_cells(ComparisonConfig.read(table), Path("runs/compare"))
    for cell in cells:
        run_cell(cell, lambda message: None)


def shortened(text: str) -> str:
    for long, short in CUTS.items():
        text = re.sub(long, short, text)
    return text


def first_words(text: str) -> list[str]:
    """The names of scores, without their values."""
    return [line.split()[0] for line in text.splitlines() if line.strip()]
