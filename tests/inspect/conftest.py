"""Small models of images."""

from collections.abc import Callable

import pytest
import torch

from headwise.config.base import validate
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
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
