"""`headwise evaluate --data` of runs that read images."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headwise.config.base import validate
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels, Words
from headwise.vision.pixels import Pixels

MODEL = {"kind": "vit-tiny", "image": 8, "patch": 2}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An imported model of which nobody knows what it learnt from."""
    torch.manual_seed(0)
    tables = {"task": "classify-images", "data": {"name": "unknown"}, "model": MODEL, "train": {"steps": 1}}
    experiment = validate(Experiment, tables)
    tokenisers = Tokenisers(Pixels(8, 8, 1, (0.3,), (0.4,)), Labels([str(digit) for digit in range(10)]))
    model = experiment.create_task(tokenisers).build(experiment.model)
    return TrainedModel(model, tokenisers, experiment).save(tmp_path / "run").path


def test_it_is_scored_on_a_named_set_and_on_all_of_a_folder(headwise, run: Path, tmp_path: Path) -> None:
    assert json.loads(headwise("evaluate", run, "--data", "digits", "--json").out)["items"] == 360
    for label in ("3", "7"):
        (tmp_path / "own" / label).mkdir(parents=True)
        for number in range(2):
            Image.fromarray(np.full((8, 8), 40 * number, np.uint8)).save(tmp_path / "own" / label / f"{number}.png")
    assert json.loads(headwise("evaluate", run, "--data", tmp_path / "own", "--json").out)["items"] == 4


def test_data_that_cannot_be_scored_is_an_error(headwise, run: Path, tmp_path: Path) -> None:
    told = headwise("evaluate", run)
    assert told.status == 2 and "--data" in told.err and "Traceback" not in told.err
    assert "one image dataset" in headwise("evaluate", run, "--data", "digits", "--data", "mnist").err
    (tmp_path / "own" / "dog").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "own" / "dog" / "a.png")
    told = headwise("evaluate", run, "--data", tmp_path / "own")
    assert told.status == 2 and "dog" in told.err


def test_the_confusion_of_labels_is_drawn_as_it_is_counted(headwise, run: Path, tmp_path: Path) -> None:
    counted = json.loads(headwise("evaluate", run, "--data", "digits", "--json").out)["confusion"]
    outcome = headwise("evaluate", run, "--data", "digits", "--confusion", "labels.svg")
    assert outcome.status == 0 and "labels.svg" in outcome.err
    drawn = re.findall(r">([^<]+)</text>", (tmp_path / "labels.svg").read_text())
    assert sum(map(sum, counted["counts"])) == 360 and set(counted["labels"]) == {str(digit) for digit in range(10)}
    for count in {count for row in counted["counts"] for count in row if count}:
        assert str(count) in drawn


@pytest.mark.parametrize(("task", "model"), [("detect", "detr-tiny"), ("caption", "captioner-tiny")])
def test_a_task_without_labels_has_no_confusion_matrix(headwise, tmp_path: Path, task: str, model: str) -> None:
    experiment = validate(Experiment, {"task": task, "data": {"name": "scenes"}, "model": model, "train": {"steps": 1}})
    outputs = Words(["a", "circle"]) if task == "caption" else Labels(["circle"])
    tokenisers = Tokenisers(Pixels(16, 16, 1, (0.3,), (0.4,)), outputs)
    TrainedModel(experiment.create_task(tokenisers).build(experiment.model), tokenisers, experiment).save(
        tmp_path / "run"
    )
    told = headwise("evaluate", "run", "--confusion", "labels.svg")
    assert told.status == 2 and f"--confusion: this run was trained to {task}" in told.err
    assert not (tmp_path / "labels.svg").exists()
