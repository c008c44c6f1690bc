"""Autoregressive modelling of pixels: tokens, bits per dimension, baselines, completion."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from headwise.catalog import find
from headwise.cli.main import main
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.load import load
from headwise.experiment.run import train_experiment
from headwise.tasks.pixels import PixelModelling, PixelsConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import LossState
from headwise.vision.batches import ImageBatch
from headwise.vision.images import Images
from headwise.vision.pixel_levels import FIRST, PixelLevels
from headwise.vision.pixels import Pixels

LEVELS = 4


@pytest.fixture
def images():
    """Two-coloured images of 2 x 3 pixels and two channels."""
    random = np.random.default_rng(0)
    return Images(random.integers(0, 256, (5, 2, 2, 3)).astype(np.uint8), ["a"] * 5, ["x.png"] * 5)


def make_task(images):
    sides = Tokenisers(Pixels.from_images(images.pixels), PixelLevels.from_images(images.pixels, LEVELS))
    return PixelModelling(PixelsConfig(), sides)


def build_model(task):
    entry, size = find("gpt2-tiny")
    torch.manual_seed(0)
    return task.build(entry.configure(size, {"dropout": 0.0})).eval()


def test_tokens_are_levels_row_by_row_with_the_channels_of_a_pixel_together(images):
    task = make_task(images)
    ids = task.levels.encode_images(torch.from_numpy(images.pixels))
    assert ids.shape == (5, 2 * 3 * 2)
    for row, column, channel in np.ndindex(2, 3, 2):
        expected = images.pixels[:, channel, row, column] // (256 // LEVELS) + FIRST
        assert ids[:, (row * 3 + column) * 2 + channel].tolist() == expected.tolist()
    again = task.levels.decode_images(ids, task.image)
    assert again.shape == images.pixels.shape
    assert task.levels.encode_images(torch.from_numpy(again)).equal(ids)
    assert set(np.unique(again)) <= {0, 85, 170, 255}


def test_the_model_factorises_the_probability_of_an_image(images):
    """log p(image) is the sum over pixels of the log softmax after BOS and the pixels before."""
    task = make_task(images)
    model = build_model(task)
    ids = task.levels.encode_images(torch.from_numpy(images.pixels))
    expected = torch.zeros(5, dtype=torch.double)
    with torch.no_grad():
        for position in range(12):
            prefix = torch.cat((torch.full((5, 1), 1), ids[:, :position]), dim=1)
            log_p = model(prefix)[:, -1].double().log_softmax(-1)
            expected -= log_p.gather(1, ids[:, position : position + 1])[:, 0]
    assert_close(torch.from_numpy(task.compute_nll(model, images)), expected, rtol=1e-5, atol=1e-5)
    batch = ImageBatch(torch.from_numpy(images.pixels), torch.arange(5), torch.arange(5))
    loss = task.loss(model, batch, LossState())
    assert_close(loss.total.double(), expected.sum(), rtol=1e-5, atol=1e-5)
    assert int(loss.count) == 5 * 12
    bits = task.evaluate(model, images).scores[0]
    assert bits.value == pytest.approx(float(expected.sum()) / (5 * 12 * np.log(2)), rel=1e-5)


def test_a_uniform_model_has_the_logarithm_of_the_levels(images):
    task = make_task(images)
    model = build_model(task)
    for parameter in model.parameters():
        parameter.data.zero_()
    assert task.validate(model, images, images)["bits_per_dim"] == pytest.approx(np.log2(FIRST + LEVELS))


def test_the_histogram_counts_each_pixel_of_the_training_images(images):
    task = make_task(images)
    ids = (task.levels.encode_images(torch.from_numpy(images.pixels)) - FIRST).numpy()
    expected = np.zeros(5)
    for number in range(5):
        for position in range(12):
            count = (ids[:, position] == ids[number, position]).sum()
            expected[number] -= np.log((count + 1) / (5 + LEVELS))
    np.testing.assert_allclose(task.compute_histogram_nll(images), expected)


def test_a_completion_keeps_the_given_rows_and_fills_the_others(images):
    task = make_task(images)
    model = build_model(task)
    completed = task.complete_images(model, images.pixels, keep=0.5, seed=1)
    quantised = task.complete_images(model, images.pixels, keep=1.0)
    assert completed.shape == images.pixels.shape
    assert (completed[:, :, :1] == quantised[:, :, :1]).all()
    assert not (completed[:, :, 1:] == quantised[:, :, 1:]).all()
    greedy = task.complete_images(model, images.pixels, keep=0.0, temperature=0.0)
    assert (greedy == greedy[:1]).all()  # without rows all images begin alike


def test_a_run_learns_digits_better_than_the_baselines_of_chance(tmp_path, monkeypatch, capsys):
    """A tiny model, two commands; the n-gram and the histogram stand beside it."""
    monkeypatch.chdir(tmp_path)
    tables = {
        "name": "digits", "task": "pixels", "data": {"name": "digits", "cache": str(tmp_path / "cache")},
        "tokeniser": {"kind": "levels", "levels": 4}, "model": {"kind": "gpt2-tiny", "dropout": 0.0},
        "train": {"steps": 40, "batch_size": 16, "validate_every": 40, "threads": 1, "label_smoothing": 0.0,
                  "schedule": {"lr": 0.01, "warmup": 10}},
    }  # fmt: skip
    run = load(train_experiment(parse_experiment(tables), tmp_path / "runs")[0].path)
    bits, histogram = run.evaluate().scores
    assert bits.value < 1.5 and 0.9 < histogram.value < 1.5
    bigram = parse_experiment(tables | {"name": "counted", "model": {"kind": "ngram", "order": 2}})
    counted = load(train_experiment(bigram, tmp_path / "runs")[0].path).evaluate().scores
    assert bits.value < counted[0].value < 1.9 and counted[1] == histogram
    main(["generate", "runs/digits", "--out", "out.png"])
    assert "10 images" in capsys.readouterr().out
    with Image.open("out.png") as picture:
        assert picture.size == ((10 * 10 + 2) * 8, (3 * 10 + 2) * 8)


def test_another_tokeniser_is_refused():
    with pytest.raises(UserError, match="use 'levels'"):
        train_experiment(parse_experiment({
            "task": "pixels", "data": {"name": "digits"}, "tokeniser": "bytes", "model": "gpt2-tiny",
            "train": {"steps": 1},
        }))  # fmt: skip
