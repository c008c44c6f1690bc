"""A small run on made-up pairs, trained once for all tests of the command line."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from headwise.cli.main import main

LETTERS = "abcdefgh"


@dataclass
class Outcome:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


@pytest.fixture
def headwise(capsys, monkeypatch, tmp_path):
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments) -> Outcome:
        capsys.readouterr()
        status = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as leave:
            status = int(leave.code or 0)
        return Outcome(status, *capsys.readouterr())

    return run


def write_pairs(path: Path, count: int = 600) -> Path:
    """Words and their letters in reverse, upper-cased: easy to learn, impossible to guess."""
    draw = random.Random(0)
    words = sorted({"".join(draw.choices(LETTERS, k=draw.randint(2, 4))) for _ in range(count)})
    path.write_text("".join(f"{word}\t{' '.join(reversed(word.upper()))}\n" for word in words), encoding="utf-8")
    return path


EXPERIMENT = """
seed = 1
[data]
train = "{pairs}"
[tokeniser]
kind = "characters"
target = {{kind = "words"}}
[model]
kind = "transformer-tiny"
wiring = "pre"
dropout = 0.0
[train]
steps = {steps}
batch_size = 64
schedule = {{kind = "cosine", lr = 0.006, warmup = 10}}
label_smoothing = 0.0
threads = 1
"""


def write_experiment(folder: Path, steps: int = 250) -> Path:
    pairs = write_pairs(folder / "pairs.tsv")
    path = folder / "reverse.toml"
    path.write_text(EXPERIMENT.format(pairs=pairs, steps=steps), encoding="utf-8")
    return path


@pytest.fixture
def pairs_file(tmp_path) -> Path:
    return write_pairs(tmp_path / "pairs.tsv")


@pytest.fixture
def experiment_file(tmp_path) -> Callable[..., Path]:
    """An experiment of so many steps, in the folder where commands run."""
    return partial(write_experiment, tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A run that has learnt to reverse."""
    from headwise.experiment.config import Experiment
    from headwise.experiment.run import train_experiment

    folder = tmp_path_factory.mktemp("trained")
    experiment = Experiment.read(write_experiment(folder), [f'data.cache="{folder}/cache"'])
    return train_experiment(experiment, folder / "runs")[0].path
