"""`headwise detect`: from a list of boxes to a run, and from the run to boxes and pictures."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headwise.config.base import validate
from headwise.experiment.config import Experiment
from headwise.experiment.run import train_experiment
from headwise.vision.scenes import draw_scenes

EXPERIMENT = {
    "name": "boxes",
    "task": {"kind": "detect", "flip": 0.5, "augment": ["colour"]},
    "model": {"kind": "detr-tiny"},
    "train": {"steps": 2, "batch_size": 4, "threads": 1, "schedule": {"kind": "constant", "lr": 0.001}},
}


def write_coco(folder: Path, count: int = 12) -> Path:
    """Scenes as files with a list of their boxes."""
    images = draw_scenes("scenes", count, 32)
    names = sorted({label for boxes in images.targets for label in boxes.labels})
    notes = [
        {"image_id": n, "category_id": names.index(label), "bbox": [x0, y0, x1 - x0, y1 - y0]}
        for n, boxes in enumerate(images.targets)
        for (x0, y0, x1, y1), label in zip(boxes.corners.tolist(), boxes.labels, strict=True)
    ]
    for number, pixels in enumerate(images.pixels):
        Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(folder / f"{number}.png")
    path = folder / "boxes.json"
    path.write_text(
        json.dumps(
            {
                "images": [{"id": n, "file_name": f"{n}.png", "width": 32, "height": 32} for n in range(count)],
                "categories": [{"id": n, "name": name} for n, name in enumerate(names)],
                "annotations": notes,
            }
        )
    )
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("detect")
    data = {"train": str(write_coco(folder)), "format": "coco", "valid_fraction": 0.3, "cache": str(folder / "cache")}
    experiment = validate(Experiment, {**EXPERIMENT, "data": data})
    found, result = train_experiment(experiment, folder / "runs")
    assert result.best["name"] == "ap"
    return found.path


def test_detected_objects_are_printed_and_drawn(headwise, run: Path, tmp_path: Path) -> None:
    image = run.parents[1] / "0.png"
    told = headwise("detect", run, image, "--above", "0", "--out", "boxes.svg", "--attention")
    assert told.status == 0, told.err
    rows = [line.split("\t") for line in told.out.splitlines()]
    assert len(rows) == 4  # as many as there are slots
    assert all(len(box.split()) == 4 and float(score) > 0 for _, score, box, _ in rows)
    drawn = (tmp_path / "boxes.svg").read_text()
    assert drawn.count("<image") == 1 + 4  # all boxes, and a panel for each slot


def test_json_and_several_images(headwise, run: Path) -> None:
    files = [run.parents[1] / f"{number}.png" for number in (0, 1)]
    lines = headwise("detect", run, *files, "--above", "0", "--json").out.splitlines()
    assert [json.loads(line)["image"] for line in lines] == [str(file) for file in files]
    scores = [each["score"] for each in json.loads(lines[0])["objects"]]
    assert scores == sorted(scores, reverse=True)
    assert headwise("detect", run, files[0], "--above", "1").out == ""


def test_the_run_is_evaluated(headwise, run: Path) -> None:
    found = json.loads(headwise("evaluate", run, "--json").out)
    assert [score["name"] for score in found["scores"]][:3] == ["AP", "AP50", "AP75"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "there is no image"),
        (("a.png", "--attention"), "--attention"),
        (("a.png", "b.png", "--out", "x.svg"), "--out"),
        (("a.png", "--out", "x.gif"), ".gif"),
        (("a.png",), "a.png"),
    ],
)
def test_mistakes_are_one_sentence(headwise, run: Path, arguments: tuple[str, ...], sentence: str) -> None:
    told = headwise("detect", run, *arguments)
    assert told.status == 2
    assert sentence in told.err
    assert len(told.err.splitlines()) == 1
