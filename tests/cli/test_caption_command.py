"""`headwise caption`: a sentence for a file."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from headwise.config.base import validate
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Words
from headwise.vision.pixels import Pixels


def save_run(path: Path) -> TrainedModel:
    torch.manual_seed(1)
    tables = {"task": "caption", "data": {"name": "scene-captions"}, "model": "captioner-tiny", "train": {"steps": 1}}
    experiment = validate(Experiment, tables)
    tokenisers = Tokenisers(Pixels(16, 16, 1, (0.5,), (0.25,)), Words(["a", "red", "circle"]))
    loaded = TrainedModel(experiment.create_task(tokenisers).build(experiment.model).eval(), tokenisers, experiment)
    loaded.save(path)
    return loaded


def test_image_files_are_captioned(headwise, tmp_path):
    loaded = save_run(tmp_path / "run")
    files = [tmp_path / f"{name}.png" for name in "ab"]
    for number, file in enumerate(files):
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (20, 30), dtype=np.uint8)).save(file)
    wanted = loaded.caption(files, beams=2)
    told = [
        json.loads(line)
        for line in headwise("caption", tmp_path / "run", *files, "--beams", 2, "--json").out.splitlines()
    ]
    assert told == [{"image": str(file), "caption": text} for file, text in zip(files, wanted, strict=True)]
    shown = headwise("caption", tmp_path / "run", files[0])
    assert shown.out == f"{loaded.caption(files[:1])[0]}\t{files[0]}\n"
    (tmp_path / "none.png").write_text("no image")
    wrong = headwise("caption", tmp_path / "run", tmp_path / "none.png")
    assert wrong.status == 2 and "none.png" in wrong.err and wrong.err.count("\n") == 1
