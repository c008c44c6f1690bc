"""Repeated augmentation (Berman et al. 2019): several copies of an image in one batch, epochs as long as without."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from headwise.experiment.config import parse_experiment
from headwise.tasks.tables import TASKS
from headwise.vision.batches import ImageData
from headwise.vision.images import Images

CASES = [(1, 60, 12), (2, 60, 12), (3, 60, 12), (3, 61, 12), (4, 10, 8)]  # repeats, images, batch size


def image_data(repeats: int, count: int, size: int) -> ImageData:
    pixels = np.zeros((count, 1, 2, 2), np.uint8)
    images = Images(pixels, ["a"] * count, [str(number) for number in range(count)])
    return ImageData(images, torch.from_numpy, seed=5, size=size, repeats=repeats)


@pytest.mark.parametrize(("repeats", "count", "size"), CASES)
def test_an_epoch_has_copies_of_each_of_its_images_and_its_usual_length(repeats: int, count: int, size: int) -> None:
    data = image_data(repeats, count, size)
    batches = [data.plan(0)[number] for number in range(len(data.plan(0)))]
    assert [len(batch) for batch in batches] == [size] * (count // size)
    copies = Counter(np.concatenate(batches).tolist())
    assert len(copies) == -(-(count // size) * size // repeats)
    assert sorted(copies.values())[1:] == [repeats] * (len(copies) - 1)  # the last image may be cut off
    if size % repeats == 0:  # side by side, so that one step sees all of them
        assert all(set(Counter(batch.tolist()).values()) == {repeats} for batch in batches)


def test_epochs_have_different_images() -> None:
    data = image_data(3, 60, 12)
    epochs = [frozenset(np.concatenate(list(data.plan(epoch))).tolist()) for epoch in range(30)]
    assert len(set(epochs)) == 30 and frozenset().union(*epochs) == frozenset(range(60))


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_setting_of_the_task_reaches_the_batches(repeats: int, tmp_path: Path) -> None:
    experiment = parse_experiment(
        {
            "task": {"kind": "classify-images", "repeats": repeats},
            "data": {"name": "digits", "max_images": 48, "valid_size": 8, "cache": str(tmp_path / "cache")},
            "model": "vit-tiny",
            "train": {"steps": 1, "batch_size": 12},
        }
    )
    prepared = TASKS["classify-images"].task_class.prepare(experiment.data, experiment.tokeniser)
    data = experiment.create_task(prepared.tokenisers).build_batches(prepared.train, 0, experiment.train)
    batch = data.batch(data.plan(0)[0])
    copies = Counter(batch.ids.tolist())
    assert set(copies.values()) == {repeats} and len(copies) == 12 // repeats
    for number in copies:  # all copies are the same image with the same label
        rows = (batch.ids == number).nonzero().squeeze(1)
        assert (batch.images[rows] == batch.images[rows[0]]).all()
        assert len(batch.targets[rows].unique()) == 1
