"""A small table on made-up pairs, run once for all tests."""

import random
from pathlib import Path

import pytest

from headwise.compare.cell import build_cells
from headwise.compare.config import ComparisonConfig
from headwise.compare.run import compare
from headwise.compare.worker import run_cell

TABLE = """
title = "Wirings"
seeds = [1, 2]
score = "SER"
evaluate = {{ language = "en" }}
[experiment.data]
train = "{folder}/pairs.tsv"
cache = "{folder}/cache"
test_fraction = 0.1
[experiment.model]
kind = "transformer-tiny"
[experiment.task]
sample = 0
[experiment.decode]
max_extra = 2
[experiment.train]
minutes = 90
batch_size = 32
log_every = 5
threads = 1
[budget]
steps = 20
[set]
"model.dropout" = 0.0
[[arm]]
name = "post norm"
published = {{ SER = 20.6, source = "A 2019" }}
set = {{ "model.wiring" = "post" }}
[[arm]]
name = "pre"
set = {{ "model.wiring" = "pre" }}
[[published]]
name = "n-gram"
SER = 24.4
source = "B 2008"
"""


def write_table(folder: Path) -> Path:
    draw = random.Random(0)
    words = sorted({"".join(draw.choices("abcd", k=draw.randint(1, 4))) for _ in range(300)})
    (folder / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1].upper()}\n" for word in words))
    path = folder / "small.toml"
    path.write_text(TABLE.format(folder=folder))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="session")
def table(folder):
    """The file."""
    return write_table(folder)


@pytest.fixture(scope="session")
def config(table):
    return ComparisonConfig.read(table)


@pytest.fixture(scope="session")
def runs(folder):
    return folder / "runs"


@pytest.fixture(scope="session")
def result(config, runs):
    """Trained one after the other in this process, which has torch already."""
    config = config.select(seeds=[1])
    for cell in build_cells(config, runs):
        run_cell(cell, lambda message: None)
    return compare(config, runs)
