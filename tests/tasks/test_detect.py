"""The task `detect`: losses, mirrors, scores, and boxes in the pixels of the image that was given."""

import numpy as np
import pytest
import torch
from PIL import Image

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.models.detector import Detections
from headwise.models.detr import SIZES, DetrConfig
from headwise.tasks.detect import Detect, DetectConfig, collect_classes, describe_boxes, flip_randomly
from headwise.tasks.detection_loss import Objects
from headwise.tasks.tables import TASKS
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.vision.boxes import Boxes, to_centred
from headwise.vision.images import Images
from headwise.vision.pixels import Pixels
from headwise.vision.scenes import draw_scenes


@pytest.fixture(scope="module")
def images() -> Images:
    return draw_scenes("scenes", 8, 32, seed=1)


@pytest.fixture(scope="module")
def task(images: Images) -> Detect:
    return Detect(DetectConfig(), Tokenisers(Pixels.from_images(images.pixels), collect_classes(images.targets)))


class Oracle(torch.nn.Module):
    """Says what is true, for images in this order."""

    def __init__(self, task: Detect, images: Images, queries: int = 6):
        super().__init__()
        labels = len(task.classes)
        self.logits = torch.zeros(len(images), queries, labels + 1)
        self.logits[..., -1] = 9.0
        self.boxes = torch.full((len(images), queries, 4), 0.5)
        for row, boxes in enumerate(images.targets):
            centred = torch.from_numpy(to_centred(boxes.corners / np.float32(32)))
            for slot, (label, box) in enumerate(zip(boxes.labels, centred, strict=True)):
                self.logits[row, slot, task.classes.index(label)] = 20.0
                self.boxes[row, slot] = box

    def forward(self, pixels: torch.Tensor) -> Detections:
        return Detections(self.logits[: len(pixels)], self.boxes[: len(pixels)])


def test_the_truth_has_full_precision_and_comes_first(task: Detect, images: Images) -> None:
    oracle = Oracle(task, images)
    assert task.validate(oracle, images, images) == pytest.approx({"ap": 100, "ap50": 100})
    found = task.evaluate(oracle, images)
    assert [score.name for score in found.scores][:3] == ["AP", "AP50", "AP75"]
    assert found.scores[0].low == found.scores[0].high == 100
    assert all(
        sorted(o.split("; ")) == sorted(r[0].split("; ")) for o, r in zip(found.outputs, found.references, strict=True)
    )


def test_a_small_model_learns_a_batch(task: Detect, images: Images) -> None:
    torch.manual_seed(0)
    model = task.build(validate(DetrConfig, {**SIZES["tiny"], "dropout": 0.0}))
    data = task.build_batches(images, 1, TrainConfig(steps=1, batch_size=4))
    batch = data.batch(data.plan(0)[0])
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    losses = []
    for _ in range(12):
        loss = task.loss(model, batch, task.init_state(model))
        (loss.total / loss.count).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.nll / loss.count))
    assert losses[-1] < 0.85 * losses[0]
    assert batch.tokens == 4


def test_a_mirror_has_its_boxes_mirrored() -> None:
    boxes = [
        Boxes(np.array([[0, 0, 4, 8]]), ("a",)),
        Boxes(np.zeros((0, 4)), ()),
        Boxes(np.array([[8, 0, 16, 8]]), ("a",)),
    ]
    objects = Objects.of(boxes, {"a": 0}, 8, 16)
    images = torch.rand(3, 1, 8, 16)
    same, kept = flip_randomly(images, objects, 0.0)
    assert same is images
    assert kept is objects
    turned, moved = flip_randomly(images, objects, 1.0)
    assert torch.equal(turned, images.flip(-1))
    truth = Objects.of([each.flip(16) for each in boxes], {"a": 0}, 8, 16)
    assert torch.allclose(moved.boxes, truth.boxes)
    torch.manual_seed(0)
    some, _ = flip_randomly(images, objects, 0.5)
    kinds = {bool(torch.equal(a, b)) for a, b in zip(some, images, strict=True)}
    assert kinds == {True, False}


def test_boxes_are_in_the_pixels_of_the_image_that_was_given(task: Detect, images: Images) -> None:
    oracle = Oracle(task, images)
    large = Image.new("RGB", (128, 64))  # its middle, 64 x 64, is seen as 32 x 32
    (found,) = task.detect_in_images(oracle, [large])
    truth = images.targets[0].corners * 2 + np.array([32, 0, 32, 0])
    assert sorted(found.corners.tolist()) == [pytest.approx(row, abs=1e-3) for row in sorted(truth.tolist())]
    assert task.detect_in_images(oracle, []) == []


def test_each_slot_looks_somewhere_in_the_image(task: Detect, images: Images) -> None:
    model = task.build(validate(DetrConfig, SIZES["tiny"]))
    maps = task.attention_maps(model, torch.from_numpy(images.pixels[0]))
    assert maps.shape[0] == SIZES["tiny"]["queries"]
    assert maps.sum((1, 2)) == pytest.approx(np.ones(len(maps)), abs=1e-5)


def test_mistakes_are_said(task: Detect, images: Images) -> None:
    with pytest.raises(UserError, match="no boxes"):
        collect_classes(["cat", "dog"])
    strange = Images(images.pixels[:1], [Boxes(np.zeros((1, 4)), ("dragon",))], ["x"])
    with pytest.raises(UserError, match="dragon"):
        task.build_batches(strange, 1, TrainConfig(steps=1))
    with pytest.raises(ValueError, match="in its place"):
        TASKS.parse({"kind": "detect", "augment": ["flip"]})
    assert describe_boxes(Boxes(np.zeros((0, 4)), ())) == ""
