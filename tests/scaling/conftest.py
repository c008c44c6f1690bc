"""A small ladder on made-up text, climbed once for all tests."""

import random
from pathlib import Path

import pytest

from headwise.compare.cell import build_cells
from headwise.compare.worker import run_cell
from headwise.scaling.config import ScalingConfig

LADDER = """
title = "Three sizes"
tokens = [1000, 2000, 4000]
[experiment]
task = {{ kind = "language-model", context = 16 }}
[experiment.data]
train = "{folder}/text.txt"
cache = "{folder}/cache"
format = "text"
[experiment.model]
kind = "transformer"
heads = 2
positions = "rotary"
wiring = "pre"
dropout = 0.0
[experiment.train]
minutes = 90
batch_size = 16
validate_every = 10
schedule = {{ kind = "cosine", lr = 0.01, warmup = 2 }}
threads = 1
[[size]]
name = "w8"
set = {{ "model.width" = 8, "model.decoder.depth" = 1 }}
[[size]]
name = "w16"
set = {{ "model.width" = 16, "model.decoder.depth" = 1 }}
[[size]]
name = "w32"
set = {{ "model.width" = 32, "model.decoder.depth" = 2 }}
"""


@pytest.fixture(scope="session")
def ladder(tmp_path_factory) -> Path:
    """The file."""
    folder = tmp_path_factory.mktemp("scaling")
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(40)]
    (folder / "text.txt").write_text(" ".join(draw.choices(words, weights=range(1, 41), k=3000)))
    path = folder / "small.toml"
    path.write_text(LADDER.format(folder=folder))
    return path


@pytest.fixture(scope="session")
def climbed(ladder) -> Path:
    """The folder of its runs: all but the last are trained, in this process, which has torch already."""
    runs = ladder.parent / "runs"
    *most, _ = build_cells(ScalingConfig.read(ladder).comparison, runs)
    for cell in most:
        run_cell(cell, lambda message: None)
    return runs
