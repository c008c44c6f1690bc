"""The task `caption`: a sentence for an image, on the rails of transduction."""

import numpy as np
import pytest
import torch

from headwise.config.base import validate
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.models.captioner import SIZES, CaptionerConfig
from headwise.tasks.caption import Caption, CaptionConfig, pair_captions, train_caption_tokeniser
from headwise.tasks.tables import TASKS
from headwise.text.config import WordsConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.vision.images import Images
from headwise.vision.pixels import Pixels
from headwise.vision.scenes import draw_scenes


@pytest.fixture(scope="module")
def images() -> Images:
    return draw_scenes("scene-captions", 6, 16, seed=1)


@pytest.fixture(scope="module")
def task(images: Images) -> Caption:
    return Caption(
        CaptionConfig(),
        Tokenisers(Pixels.from_images(images.pixels), train_caption_tokeniser(images.targets, WordsConfig())),
    )


@pytest.fixture(scope="module")
def taught(task: Caption, images: Images) -> torch.nn.Module:
    """A model that knows these six by heart."""
    torch.manual_seed(0)
    model = task.build(validate(CaptionerConfig, {**SIZES["tiny"], "channels": 3}))
    data = task.build_batches(images, 1, TrainConfig(steps=1, batch_size=6))
    batch = data.batch(data.plan(0)[0])
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    for _ in range(80):
        loss = task.loss(model, batch, task.init_state(model))
        (loss.total / loss.count).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def test_it_learns_and_writes_what_it_learnt(task: Caption, taught: torch.nn.Module, images: Images) -> None:
    assert task.caption_images(taught, images.pixels, GREEDY) == list(images.targets)
    assert task.caption_images(taught, torch.from_numpy(images.pixels), DecodeConfig(beams=3)) == list(images.targets)
    found = task.validate(taught, images, pair_captions(images))
    assert found["exact_match"] == 100
    assert found["bleu"] == pytest.approx(100)
    assert found["nll"] < 0.3
    assert task.checkpoint_metric.name in found


def test_evaluation_names_images_and_any_of_several_captions_is_right(
    task: Caption, taught: torch.nn.Module, images: Images
) -> None:
    twice = [*pair_captions(images), (pair_captions(images)[0][0], "a picture")]
    found = task.evaluate(taught, twice)
    scores = {score.name: score.value for score in found.scores}
    assert found.sources == list(images.names)
    assert found.references[0] == [images.targets[0], "a picture"]
    assert scores["exact match"] == 100
    assert scores["perplexity"] > 1


def test_what_an_image_gets_does_not_depend_on_the_others(
    task: Caption, taught: torch.nn.Module, images: Images
) -> None:
    for config in (GREEDY, DecodeConfig(temperature=2.0, seed=3)):
        alone = [task.caption_images(taught, images.pixels[number : number + 1], config)[0] for number in range(3)]
        assert alone == task.caption_images(taught, images.pixels, config)[:3]


def test_batches_have_images_as_sources(task: Caption, images: Images) -> None:
    data = task.build_batches(images, 1, TrainConfig(steps=1, batch_size=4))
    for numbers in data.plan(0):
        batch = data.batch(numbers).to("cpu")
        assert batch.source.dtype == torch.uint8
        assert np.array_equal(batch.source.numpy(), images.pixels[batch.ids.numpy()])
        texts = [task.tokenisers.target.decode(row) for row in batch.target_out.tolist()]
        assert texts == [images.targets[number] for number in batch.ids.tolist()]


def test_mistakes_are_said(task: Caption, taught: torch.nn.Module, images: Images) -> None:
    with pytest.raises(UserError, match="no captions"):
        train_caption_tokeniser([3, 4], WordsConfig())
    with pytest.raises(UserError, match="replace_unknown"):
        task.caption_images(taught, images.pixels, DecodeConfig(replace_unknown=True))
    with pytest.raises(ValueError, match="in its place"):
        TASKS.parse({"kind": "caption", "augment": ["flip"]})
    with pytest.raises(ValueError, match="prefix_lm"):
        TASKS.parse({"kind": "caption", "prefix_lm": True})
