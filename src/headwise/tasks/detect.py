"""Object detection: a class and a box for each object in an image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.blocks.record import collect, record
from headwise.data.config import DataConfig
from headwise.data.prepare import Prepared
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.average_precision import average_precision
from headwise.models.detector import Detector
from headwise.tasks.base import Evaluation, TaskConfig
from headwise.tasks.classify_images import Augment, InPlace, LabelledImageTask, batch_images, prepare_images
from headwise.tasks.detection_loss import Objects, detection_loss
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric
from headwise.utils.extras import needed_for
from headwise.vision.batches import ImageBatch, ImageData
from headwise.vision.boxes import Boxes, Detections, to_corners
from headwise.vision.images import Images

if TYPE_CHECKING:
    from PIL.Image import Image

AT_ONCE = 32  # images of a batch
THRESHOLD = 0.5  # the least score of a reported detection


class Detect(LabelledImageTask["DetectConfig", Detector]):
    """Object detection: images and the boxes of objects in them."""

    host_work = "Hungarian matching of queries with objects"

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return prepare_images(data, tokeniser, collect_classes)

    def build_batches(self, examples: Images, seed: int, config: TrainConfig) -> ImageData:
        with needed_for("task.kind = 'detect': matching of boxes"):
            import_module("scipy.optimize")
        self.encode_labels([label for boxes in examples.targets for label in boxes.labels])  # refuses unknown ones
        class_numbers = {label: number for number, label in enumerate(self.classes)}

        def objects(numbers: np.ndarray) -> Objects:
            boxes = [examples.targets[number] for number in numbers]
            return Objects.of(boxes, class_numbers, self.pixels.height, self.pixels.width)

        return ImageData(examples, objects, seed, config.batch_size or AT_ONCE)

    @cached_property
    def augmentations(self) -> list[Augment]:
        return [config.build() for config in self.config.augment]

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("ap", lower=False)

    def loss(self, model: Detector, batch: ImageBatch, state: LossState) -> Loss:
        images, objects = self.pixels.scale(batch.images), batch.targets
        if model.training:
            images, objects = flip_randomly(images, objects, self.config.flip)
            for augment in self.augmentations:
                images, _ = augment(images, images.new_zeros(len(images), 0))
        return detection_loss(model.layers(self.pixels.normalise_images(images)), objects)

    def validate(self, model: Detector, examples: Images, pairs: Images) -> Mapping[str, float]:
        scores = average_precision(self.detect(model, examples.pixels), examples.targets, names=("AP", "AP50"))
        return {score.name.lower(): score.value for score in scores}

    def evaluate(
        self, model: Detector, pairs: Images, config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        detections = self.detect(model, pairs.pixels)
        scores = average_precision(detections, pairs.targets, resamples=200, sides=self.config.sides)
        outputs = [describe_boxes(boxes.filter_scores(THRESHOLD)) for boxes in detections]
        return Evaluation(list(pairs.names), outputs, [[describe_boxes(boxes)] for boxes in pairs.targets], scores)

    def detect(self, model: Detector, images: np.ndarray | Tensor) -> list[Detections]:
        """The detections of all object queries in each image (N, C, H, W) of bytes, by falling score."""
        device, by_image = get_device(model), list[Detections]()
        size = torch.tensor([self.pixels.width, self.pixels.height] * 2, device=device)
        with inference_mode(model):
            for batch in batch_images(images, AT_ONCE):
                detections = model(self.pixels.normalise_images(batch.to(device)))
                scores, numbers = detections.best()  # 2 x (B, Q)
                corners = to_corners(detections.boxes.float()) * size
                rows = (tensor.cpu().numpy() for tensor in (corners, numbers, scores))
                by_image += [self._sort_by_score(*row) for row in zip(*rows, strict=True)]
        return by_image

    def detect_in_images(self, model: Detector, images: Sequence[Image], above: float = THRESHOLD) -> list[Detections]:
        """Detections with at least the score `above` in images of any size, in pixels of those images."""
        if not images:
            return []
        detections = self.detect(model, torch.stack([self.pixels.read(image) for image in images]))
        windows = (self.visible_window(image.size) for image in images)
        return [
            self._to_image(boxes.filter_scores(above), crop) for boxes, crop in zip(detections, windows, strict=True)
        ]

    def visible_window(self, size: tuple[int, int]) -> tuple[float, float, float, float]:
        """x0 y0 x1 y1 of the centre crop that the model reads of an image with this width and height."""
        return self.pixels.compute_crop(*size)

    def _to_image(self, detections: Detections, crop: tuple[float, float, float, float]) -> Detections:
        """Detections in pixels of the original image instead of the model's."""
        x0, y0, x1, y1 = crop
        scale = np.array([(x1 - x0) / self.pixels.width, (y1 - y0) / self.pixels.height] * 2)
        return replace(detections, corners=detections.corners * scale + np.array([x0, y0] * 2))

    def attention_maps(self, model: Detector, image: Tensor) -> np.ndarray:
        """Cross-attention of each object query over one image (C, H, W) of bytes: the last layer's mean over its heads,
        (Q, h, w)."""
        with inference_mode(model), record() as maps, collect("layer") as side:
            model(self.pixels.normalise_images(image[None].to(get_device(model))))
        grid = [stream.grid for stream in side.list_values("layer") if stream.grid][-1]  # queries have no grid
        weights = np.nanmean(maps.stack_by_kind()["cross"][-1], axis=0)  # (layers, H, Q, T) -> (Q, T)
        return weights[:, -grid[0] * grid[1] :].reshape(-1, *grid)  # without class tokens: (Q, T) -> (Q, h, w)

    def _sort_by_score(self, corners: np.ndarray, numbers: np.ndarray, scores: np.ndarray) -> Detections:
        order = np.argsort(-scores, kind="stable")
        return Detections(
            corners[order], tuple(self.classes[number] for number in numbers[order]), scores[order], order
        )


def collect_classes(targets: Sequence[Any], config: TokeniserConfig | None = None) -> Labels:
    """The labels of all boxes, in alphabetical order."""
    if not all(isinstance(boxes, Boxes) for boxes in targets):
        raise UserError("data: these images have no boxes to learn; use data.name = 'scenes' or data.format = 'coco'")
    return Labels(sorted({label for boxes in targets for label in boxes.labels}))


def flip_randomly(images: Tensor, objects: Objects, probability: float) -> tuple[Tensor, Objects]:
    """Random horizontal flips of images (B, C, H, W) and their boxes."""
    if not probability:
        return images, objects
    flip = torch.rand(len(images), device=images.device) < probability  # (B,)
    counts = torch.tensor(objects.counts, device=images.device)
    flip_boxes = flip.repeat_interleave(counts, output_size=len(objects.labels))  # (B,) -> (N,)
    x, rest = objects.boxes[:, :1], objects.boxes[:, 1:]
    boxes = torch.cat((torch.where(flip_boxes[:, None], 1 - x, x), rest), dim=1)
    return torch.where(flip[:, None, None, None], images.flip(-1), images), replace(objects, boxes=boxes)


def describe_boxes(boxes: Boxes | Detections) -> str:
    """Boxes as text: label and corners.

    >>> describe_boxes(Boxes(np.array([[1, 2, 5, 6.25]]), ("star",)))
    'star 1.0 2.0 5.0 6.2'
    """
    rows: Iterable[tuple[str, np.ndarray]] = zip(boxes.labels, boxes.corners, strict=True)
    return "; ".join(f"{label} {' '.join(f'{side:.1f}' for side in corners)}" for label, corners in rows)


class DetectConfig(TaskConfig):
    """Object detection: a box and a label for each object in an image."""

    task_class = Detect
    divisible = True
    labelled = True
    command = "detect"
    fits = "boxes"
    baselines = ("mean boxes",)
    reads = "images"
    kind: Literal["detect"] = "detect"
    flip: float = Field(0.0, ge=0, le=1)  # probability of a random horizontal flip in training
    augment: InPlace = ()
    sides: tuple[float, float] = (32.0, 96.0)  # square roots of areas, in pixels, from which boxes are medium and large
