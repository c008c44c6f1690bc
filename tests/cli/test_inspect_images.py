"""`headwise inspect` of runs that read images."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headwise.config.base import validate
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.vision.pixels import Pixels

EXPERIMENT = {
    "task": "classify-images",
    "data": {"name": "digits"},
    "model": {"kind": "vit-tiny", "image": 8, "patch": 2},
    "train": {"steps": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    experiment = validate(Experiment, EXPERIMENT)
    tokenisers = Tokenisers(Pixels(8, 8, 1, (0.3,), (0.4,)), Labels([str(digit) for digit in range(10)]))
    folder = tmp_path_factory.mktemp("looked")
    Image.fromarray(np.eye(8, dtype=np.uint8) * 255).save(folder / "x.png")
    return (
        TrainedModel(experiment.create_task(tokenisers).build(experiment.model), tokenisers, experiment)
        .save(folder / "run")
        .path
    )


def test_an_image_is_drawn_in_every_form(headwise, run: Path, tmp_path: Path) -> None:
    image = run.parent / "x.png"
    assert headwise("inspect", run, image).out == "attention.html\n"
    assert "x.png" in (tmp_path / "attention.html").read_text()
    told = headwise("inspect", run, image, "--view", "rollout", "--out", "a.svg")
    assert (told.status, told.out) == (0, "") and "a.svg" in told.err
    assert (tmp_path / "a.svg").read_text().count("<image") == 2
    assert (
        headwise("inspect", run, image, "--view", "heads", "--layer", "1", "--at", "3", "5", "--out", "b.png").status
        == 0
    )
    with Image.open(tmp_path / "b.png") as drawn:
        assert drawn.width > 400


def test_views_without_an_image_are_of_weights_or_of_held_out_ones(headwise, run: Path, tmp_path: Path) -> None:
    assert headwise("inspect", run, "--view", "positions").status == 0 and (tmp_path / "positions.png").is_file()
    told = headwise("inspect", run, "--view", "distance", "--json")
    found = json.loads(told.out)
    assert found["images"] == 64 and len(found["layers"]) == 2 and len(found["layers"][0]) == 4
    assert all(0 < head < 12 for layer in found["layers"] for head in layer)
    assert headwise("inspect", run, run.parent / "x.png", "--view", "distance").out.splitlines()[0].startswith("layer")
    maps = json.loads(headwise("inspect", run, run.parent / "x.png", "--json").out)["maps"]
    assert np.array(maps[0]["weights"]).shape == (4, 4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("no.png",), "no.png"),
        (("x.png", "--view", "alignment"), "is of texts"),
        (("x.png", "--view", "queries"), "--view heads"),
        (("x.png", "--view", "filters"), "nothing to do with the image"),
        (("x.png", "--kind", "cross"), "are for texts"),
        (("x.png", "--view", "heads", "--out", "x.html"), "a page has every view"),
        (("x.png", "--view", "rollout", "--out", "x.gif"), ".gif"),
        (("x.png", "--view", "rollout", "--at", "9", "0"), "does not see pixel 9 0"),
        (("--spectrum",), "is for text encoders"),
        (("--view", "rollout"), "there is no image"),
    ],
)
def test_mistakes_are_one_sentence(headwise, run: Path, arguments: tuple[str, ...], sentence: str) -> None:
    given = [
        run.parent / "x.png" if argument == "x.png" and not n else argument for n, argument in enumerate(arguments)
    ]
    told = headwise("inspect", run, *given)
    assert told.status == 2
    assert sentence in told.err
    assert len(told.err.splitlines()) == 1


def test_texts_have_no_views_of_images(headwise, trained) -> None:
    told = headwise("inspect", trained, "abc", "--view", "rollout", "--out", "x.svg")
    assert told.status == 2 and "this run reads texts" in told.err
