"""Detection: what is in an image, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.heads import Loss
from headwise.blocks.record import collect, record
from headwise.data.config import DataConfig
from headwise.data.prepare import Prepared
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.average_precision import average_precision
from headwise.tasks.base import Evaluation, TaskConfig
from headwise.tasks.classify_images import Augment, InPlace, LabelledImages, batch_images, prepared
from headwise.tasks.detection_loss import Objects, detection_loss
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric
from headwise.utils.extras import needed_for
from headwise.vision.batches import ImageBatch, ImageData
from headwise.vision.boxes import Boxes, Found, to_corners
from headwise.vision.decode import window
from headwise.vision.images import Images

if TYPE_CHECKING:
    from PIL.Image import Image

AT_ONCE = 32  # images that are looked at together
SURE = 0.5  # what is told as found, where one has to decide


class Detect(LabelledImages["DetectConfig"]):
    """Images and the boxes of what is in them."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return prepared(data, tokeniser, classes)

    def data(self, examples: Images, seed: int, config: TrainConfig) -> ImageData:
        with needed_for("task.kind = 'detect': matching of boxes"):
            import_module("scipy.optimize")
        self.encode_labels([label for boxes in examples.targets for label in boxes.labels])  # refuses strange ones
        known = {label: number for number, label in enumerate(self.classes)}

        def objects(numbers: np.ndarray) -> Objects:
            boxes = [examples.targets[number] for number in numbers]
            return Objects.of(boxes, known, self.pixels.height, self.pixels.width)

        return ImageData(examples, objects, seed, config.batch_size or AT_ONCE)

    @cached_property
    def augmentations(self) -> list[Augment]:
        return [config.build() for config in self.config.augment]

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("ap", lower=False)

    def loss(self, model: Any, batch: ImageBatch, state: LossState) -> Loss:
        images, objects = self.pixels.scaled(batch.images), batch.targets
        if model.training:
            images, objects = flipped(images, objects, self.config.flip)
            for augment in self.augmentations:
                images, _ = augment(images, images.new_zeros(len(images), 0))
        return detection_loss(model.layers(self.pixels.normalised(images)), objects)

    def validate(self, model: nn.Module, examples: Images, pairs: Images) -> Mapping[str, float]:
        found = self.detect(model, examples.pixels)
        return {
            score.name.lower(): score.value
            for score in average_precision(found, examples.targets, names=("AP", "AP50"))
        }

    def evaluate(self, model: Any, pairs: Any, config: DecodeConfig = GREEDY, language: str = "en") -> Evaluation:
        found = self.detect(model, pairs.pixels)
        scores = average_precision(found, pairs.targets, resamples=200, sides=self.config.sides)
        outputs = [describe_boxes(each.surer(SURE)) for each in found]
        return Evaluation(list(pairs.names), outputs, [[describe_boxes(boxes)] for boxes in pairs.targets], scores)

    def detect(self, model: Any, images: np.ndarray | Tensor) -> list[Found]:
        """What each slot of the model says of each image (N, C, H, W) of bytes, the surest first."""
        device, every = get_device(model), list[Found]()
        size = torch.tensor([self.pixels.width, self.pixels.height] * 2, device=device)
        with inference_mode(model):
            for part in batch_images(images, AT_ONCE):
                detections = model(self.pixels.normalised(part.to(device)))
                scores, numbers = detections.best()  # 2 x (B, Q)
                corners = to_corners(detections.boxes.float()) * size
                rows = (each.cpu().numpy() for each in (corners, numbers, scores))
                every += [self._sorted(*row) for row in zip(*rows, strict=True)]
        return every

    def detect_in_images(self, model: Any, images: Sequence[Image], above: float = SURE) -> list[Found]:
        """What is in images of any size, in their own pixels, where it has at least the score `above`."""
        if not images:
            return []
        found = self.detect(model, torch.stack([self.pixels.read(image) for image in images]))
        sizes = (image.size for image in images)
        return [
            self._restored(own.surer(above), self.visible_window(size)) for own, size in zip(found, sizes, strict=True)
        ]

    def visible_window(self, size: tuple[int, int]) -> tuple[float, float, float, float]:
        """x0 y0 x1 y1 of what the model is given of an image with this width and height: its middle."""
        return window(*size, self.pixels.height, self.pixels.width)

    def _restored(self, found: Found, seen: tuple[float, float, float, float]) -> Found:
        x0, y0, x1, y1 = seen
        scale = np.array([(x1 - x0) / self.pixels.width, (y1 - y0) / self.pixels.height] * 2)
        return replace(found, corners=found.corners * scale + np.array([x0, y0] * 2))

    def attention_maps(self, model: Any, image: Tensor) -> np.ndarray:
        """Where each slot looks in one image (C, H, W) of bytes: the last layer's mean over its heads, (Q, h, w)."""
        with inference_mode(model), record() as maps, collect("layer") as side:
            model(self.pixels.normalised(image[None].to(get_device(model))))
        grid = [stream.grid for stream in side.all("layer") if stream.grid][-1]  # slots stand on none
        weights = np.nanmean(maps.by_kind()["cross"][-1], axis=0)  # (layers, H, Q, T) -> (Q, T)
        return weights[:, -grid[0] * grid[1] :].reshape(-1, *grid)  # without class_tokens: (Q, T) -> (Q, h, w)

    def _sorted(self, corners: np.ndarray, numbers: np.ndarray, scores: np.ndarray) -> Found:
        order = np.argsort(-scores, kind="stable")
        return Found(corners[order], tuple(self.classes[number] for number in numbers[order]), scores[order], order)


def classes(targets: Sequence[Any], config: Any = None) -> Labels:
    """The labels of all boxes."""
    if not all(isinstance(boxes, Boxes) for boxes in targets):
        raise UserError("data: these images have no boxes to learn; use data.name = 'scenes' or data.format = 'coco'")
    return Labels(sorted({label for boxes in targets for label in boxes.labels}))


def flipped(images: Tensor, objects: Objects, probability: float) -> tuple[Tensor, Objects]:
    """Some images (B, C, H, W) in a mirror, with their boxes."""
    if not probability:
        return images, objects
    which = torch.rand(len(images), device=images.device) < probability  # (B,)
    counts = torch.tensor(objects.counts, device=images.device)
    whose = which.repeat_interleave(counts, output_size=len(objects.labels))  # (B,) -> (N,)
    x, rest = objects.boxes[:, :1], objects.boxes[:, 1:]
    boxes = torch.cat((torch.where(whose[:, None], 1 - x, x), rest), dim=1)
    return torch.where(which[:, None, None, None], images.flip(-1), images), replace(objects, boxes=boxes)


def describe_boxes(boxes: Boxes | Found) -> str:
    """Boxes in words.

    >>> describe_boxes(Boxes(np.array([[1, 2, 5, 6.25]]), ("star",)))
    'star 1.0 2.0 5.0 6.2'
    """
    rows: Iterable[tuple[str, np.ndarray]] = zip(boxes.labels, boxes.corners, strict=True)
    return "; ".join(f"{label} {' '.join(f'{side:.1f}' for side in corners)}" for label, corners in rows)


class DetectConfig(TaskConfig):
    """Learn what is in each image, and where: a box and a label for each object."""

    task_class = Detect
    labelled = True
    command = "detect"
    reads = "images"
    kind: Literal["detect"] = "detect"
    flip: float = Field(0.0, ge=0, le=1)  # how probable it is that an image and its boxes are mirrored in training
    augment: InPlace = ()
    sides: tuple[float, float] = (32.0, 96.0)  # roots of areas, in pixels, from which boxes are medium and large
