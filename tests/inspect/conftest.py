"""Small models of images."""

from collections.abc import Callable

import pytest
import torch

from headwise.config.base import validate
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.proteins.residues import RESIDUE_TYPES
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels
from headwise.vision.pixels import Pixels


@pytest.fixture
def build_image_run() -> Callable[..., TrainedModel]:
    """Build an untrained run of an image model by its name."""

    def build(name: str, task: str = "classify-images", data: str = "digits", **settings: object) -> TrainedModel:
        torch.manual_seed(0)
        tables = {"model": {"kind": name, **settings}, "task": {"kind": task}, "data": {"kind": "images", "name": data}}
        experiment = validate(Experiment, {**tables, "train": {"steps": 1}})
        (height, width), channels = experiment.model.image, experiment.model.channels
        pixels = Pixels(height, width, channels, (0.5,) * channels, (0.25,) * channels)
        tokenisers = Tokenisers(pixels, Labels(["cat", "dog", "elk"]))
        return TrainedModel(experiment.create_task(tokenisers).build(experiment.model).eval(), tokenisers, experiment)

    return build


@pytest.fixture
def build_fold_run() -> Callable[..., TrainedModel]:
    """Build an untrained run of a folding model by its name, on generated chains of twelve residues."""

    def build(name: str, task: str, **settings: object) -> TrainedModel:
        torch.manual_seed(0)
        data = {"min_length": 12, "max_length": 12, "rows": 6, "families": 1, "valid_families": 1, "test_families": 2}
        tables = {"model": {"kind": name}, "task": {"kind": task, **settings}, "data": data}
        experiment = validate(Experiment, {**tables, "train": {"steps": 1}})
        letters = Characters(RESIDUE_TYPES)
        tokenisers = Tokenisers(letters, letters)
        return TrainedModel(experiment.create_task(tokenisers).build(experiment.model).eval(), tokenisers, experiment)

    return build
