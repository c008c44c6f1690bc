"""`headwise evaluate --data` of runs that read images."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headwise.config.base import validate
from headwise.config.experiment import Experiment
from headwise.loaded import Loaded, task_of
from headwise.text.listed import Labels
from headwise.text.tokenisers import Tokenisers
from headwise.vision.pixels import Pixels

MODEL = {"kind": "vit-tiny", "image": 8, "patch": 2}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An imported model of which nobody knows what it learnt from."""
    torch.manual_seed(0)
    tables = {"task": "classify-images", "data": {"name": "unknown"}, "model": MODEL, "train": {"steps": 1}}
    experiment = validate(Experiment, tables)
    tokenisers = Tokenisers(Pixels(8, 8, 1, (0.3,), (0.4,)), Labels([str(digit) for digit in range(10)]))
    model = task_of(experiment, tokenisers).build(experiment.model)
    return Loaded(model, tokenisers, experiment).save(tmp_path / "run").path


def test_it_is_scored_on_a_named_set_and_on_all_of_a_folder(headwise, run: Path, tmp_path: Path) -> None:
    assert json.loads(headwise("evaluate", run, "--data", "digits", "--json").out)["items"] == 360
    for label in ("3", "7"):
        (tmp_path / "own" / label).mkdir(parents=True)
        for number in range(2):
            Image.fromarray(np.full((8, 8), 40 * number, np.uint8)).save(tmp_path / "own" / label / f"{number}.png")
    assert json.loads(headwise("evaluate", run, "--data", tmp_path / "own", "--json").out)["items"] == 4


def test_what_cannot_be_scored_is_told(headwise, run: Path, tmp_path: Path) -> None:
    told = headwise("evaluate", run)
    assert told.status == 2 and "--data" in told.err and "Traceback" not in told.err
    assert "one set of images" in headwise("evaluate", run, "--data", "digits", "--data", "mnist").err
    (tmp_path / "own" / "dog").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "own" / "dog" / "a.png")
    told = headwise("evaluate", run, "--data", tmp_path / "own")
    assert told.status == 2 and "dog" in told.err
