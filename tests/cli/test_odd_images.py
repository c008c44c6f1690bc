"""Images of odd proportions are looked at like any other; those that nobody could mean are refused by their header."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels, Words
from headwise.vision.pixels import Pixels

SIZES = [(1, 400), (400, 1), (1, 1), (1, 65_535)]  # width and height
RUNS = {
    "classify-images": {"kind": "vit-tiny", "image": 16, "patch": 4},
    "detect": "detr-tiny",
    "caption": "captioner-tiny",
}
CALLS = {
    "classify": ("classify-images", ["--json"]),
    "inspect": ("classify-images", ["--out", "page.html"]),
    "inspect of one view": ("classify-images", ["--view", "rollout", "--out", "view.png"]),
    "inspect of boxes": ("detect", ["--out", "page.html"]),
    "inspect of words": ("caption", ["--out", "page.html"]),
    "detect": ("detect", ["--above", "0", "--out", "boxes.png", "--attention"]),
    "caption": ("caption", ["--json"]),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    for task, model in RUNS.items():
        torch.manual_seed(0)
        tables = {"task": task, "data": {"name": "scenes"}, "model": model, "train": {"steps": 1}}
        outputs = Words(["a", "red", "circle"]) if task == "caption" else Labels(["one", "two"])
        tokenisers = Tokenisers(Pixels(16, 16, 3, (0.3,) * 3, (0.4,) * 3), outputs)
        experiment = validate(Experiment, tables)
        model = experiment.create_task(tokenisers).build(experiment.model)
        TrainedModel(model, tokenisers, experiment).save(folder / task)
    return folder


def declared_png(width: int, height: int) -> bytes:
    """The header of an image with so many pixels, and none of them."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in (header, b"IDAT")
    )
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("call", CALLS)
def test_narrow_images_are_inspected(headwise, runs, tmp_path, call, size):
    task, options = CALLS[call]
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "odd.png")
    outcome = headwise(call.split()[0], runs / task, "odd.png", *options)
    assert outcome.status == 0, outcome.err
    if "--out" in options:
        picture = tmp_path / options[options.index("--out") + 1]
        assert 0 < picture.stat().st_size < 2**22
    else:
        assert json.loads(outcome.out)["image"] == "odd.png"


@pytest.mark.parametrize("size", [(1, 80_000_000), (80_000_000, 1), (70_000, 2)])
@pytest.mark.parametrize("call", CALLS)
def test_huge_images_are_refused_before_they_are_decoded(headwise, runs, tmp_path, call, size):
    task, options = CALLS[call]
    (tmp_path / "odd.png").write_bytes(declared_png(*size))
    outcome = headwise(call.split()[0], runs / task, "odd.png", *options)
    assert outcome.status == 2 and outcome.out == ""
    assert outcome.err.startswith("headwise: odd.png: has a side of more than 65,535 pixels")
    assert [path.name for path in tmp_path.iterdir()] == ["odd.png"]


def test_images_without_pixels_are_refused(runs):
    from headwise.experiment.load import load

    for size in ((0, 0), (0, 5), (5, 0)):
        with pytest.raises(UserError, match=f"{size[0]} x {size[1]} pixels"):
            load(runs / "classify-images").classify_images([Image.new("RGB", size)])
