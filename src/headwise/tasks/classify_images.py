"""Recognition: one label for an image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.heads import Loss
from headwise.data.config import DataConfig
from headwise.data.prepare import Prepared
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.labels import confusion
from headwise.tasks.adversarial import AdversarialConfig, hardened
from headwise.tasks.base import Evaluation, ImageDescription, Settings, Task, TaskConfig
from headwise.tasks.classify import best, scorer
from headwise.tasks.distillation import Distillation, Teacher
from headwise.text import UNK
from headwise.text.base import Tokeniser
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric
from headwise.vision.augment.tables import AnyAugmentation
from headwise.vision.batches import ImageBatch, ImageData
from headwise.vision.config import ImagesConfig
from headwise.vision.corpora import load_images
from headwise.vision.images import Images
from headwise.vision.pixels import Pixels

Augment = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
AT_ONCE = 256  # images that are looked at together in evaluation


class LabelledImages(Task[Settings]):
    """What tasks share whose labels, of images or of what is in them, are classes."""

    @property
    def pixels(self) -> Pixels:
        assert isinstance(self.tokenisers.source, Pixels)
        return self.tokenisers.source

    @property
    def classes(self) -> list[str]:
        return self.tokenisers.target.vocabulary[UNK + 1 :]

    @property
    def image(self) -> tuple[int, int, int]:
        return self.pixels.channels, self.pixels.height, self.pixels.width

    @property
    def units(self) -> str:
        return f"{len(self.classes)} classes"

    def build(self, model: Any) -> nn.Module:
        pixels = self.pixels
        return model.with_image_size(pixels.height, pixels.width, pixels.channels).build(
            0, len(self.classes), self.config.shape
        )

    def load_test_pairs(self, data: DataConfig) -> Images:
        return load_test_images(data, self.pixels)

    def encode_labels(self, labels: Sequence[str]) -> Tensor:
        """The number of each label, (N,)."""
        known = {label: number for number, label in enumerate(self.classes)}
        if strange := sorted(set(labels) - known.keys()):
            raise UserError(f"data: the label '{strange[0]}' is none of those that were learnt: {', '.join(known)}")
        return torch.tensor([known[label] for label in labels])


class ClassifyImages(LabelledImages["ClassifyImagesConfig"]):
    """Images and their labels."""

    distillation: Distillation | None = None  # where it has a teacher

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return prepared(data, tokeniser, labels)

    def data(self, examples: Images, seed: int, config: TrainConfig) -> ImageData:
        labels, repeats = self.encode_labels(examples.targets), self.config.repeats
        return ImageData(examples, lambda n: labels[torch.from_numpy(n)], seed, config.batch_size or 128, repeats)

    @cached_property
    def augmentations(self) -> list[Augment]:
        return [config.build() for config in self.config.augment]

    @property
    def teacher_run(self) -> str:
        return self.config.teacher

    def set_teacher(self, task: Task[Any], model: nn.Module) -> None:
        assert isinstance(task, ClassifyImages)
        teacher = Teacher(model, task.pixels, task.classes, self.classes, self.pixels.channels)
        config = self.config
        self.distillation = Distillation(teacher, config.distillation, config.temperature, config.distillation_weight)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric(self.config.scores[0], lower=False)

    def loss(self, model: Any, batch: ImageBatch, state: LossState) -> Loss:
        images, targets = self.pixels.scaled(batch.images), F.one_hot(batch.targets, len(self.classes)).float()
        for augment in self.augmentations if model.training else ():
            images, targets = augment(images, targets)
        looks = self.config.adversarial.looks(state.progress) if model.training else 1
        return hardened(self.taught, model, images, targets, self.config.adversarial, looks)

    def taught(self, model: Any, images: Tensor, targets: Tensor) -> Loss:
        """The loss of images (B, C, H, W) in 0..1 and how much they are of each class, (B, L)."""
        voices = model.head_logits(self.pixels.normalised(images))
        losses = [cross_entropy(logits, targets, self.label_smoothing) for logits in voices]
        rows = self.distillation(voices, losses, images) if self.distillation else torch.stack(losses).mean(0)
        nll = cross_entropy(model.ensemble(voices).detach(), targets).sum()
        return Loss(rows.sum(), nll, torch.tensor(len(images), device=images.device))

    def validate(self, model: nn.Module, examples: Images, pairs: Images) -> Mapping[str, float]:
        outputs = [[best(found)] for found in self.predict_probabilities(model, examples.pixels)]
        references = [[label] for label in examples.targets]
        return {name: scorer(name)(outputs, references, 0).value for name in self.config.scores}

    def evaluate(self, model: Any, pairs: Any, config: DecodeConfig = GREEDY, language: str = "en") -> Evaluation:
        self.encode_labels(pairs.targets)  # refuses labels that it could never give
        outputs = [[best(found)] for found in self.predict_probabilities(model, pairs.pixels)]
        references = [[str(label)] for label in pairs.targets]
        names, counts = confusion(outputs, references)
        scores = [scorer(name)(outputs, references, 1000) for name in self.config.scores]
        return Evaluation(list(pairs.names), [label for (label,) in outputs], references, scores, names, counts)

    def describe_image(self, model: Any, image: Tensor, config: DecodeConfig) -> ImageDescription:
        return ImageDescription(self.predict_probabilities(model, image)[0])

    def predict_probabilities(self, model: Any, images: np.ndarray | Tensor) -> list[dict[str, float]]:
        """The probability of each label, for each image (N, C, H, W) of bytes."""
        device = get_device(model)
        found: list[dict[str, float]] = []
        with inference_mode(model):
            for part in batch_images(images):
                logits = model(self.pixels.normalised(part.to(device)))
                found += [dict(zip(self.classes, row, strict=True)) for row in logits.float().softmax(-1).tolist()]
        return found


def prepared(
    data: DataConfig, tokeniser: TokeniserConfig | Tokenisers, outputs: Callable[[Sequence[Any], Any], Tokeniser]
) -> Prepared:
    """Decoded images, and what a run knows already: the size of its pixels, unless `data.size` says another, their
    scale, and its outputs; else `outputs` learns those from the targets and the config."""
    assert isinstance(data, ImagesConfig)
    known = tokeniser if isinstance(tokeniser, Tokenisers) else None
    pixels = known.source if known is not None and isinstance(known.source, Pixels) else None
    corpus = load_images(for_pixels(data, pixels))
    target = known.target if known is not None else outputs(corpus.train.targets, tokeniser)
    sides = Tokenisers(measured(corpus.train, data, pixels), target)
    return Prepared(sides, corpus.train, corpus.valid, corpus.valid, corpus.test)


def labels(targets: Sequence[Any], config: Any = None) -> Labels:
    """All labels, in alphabetical order."""
    return Labels(sorted(set(targets)))


def batch_images(images: np.ndarray | Tensor, size: int = AT_ONCE) -> Iterator[Tensor]:
    """Some images at a time."""
    for start in range(0, len(images), size):
        part = images[start : start + size]
        yield part if isinstance(part, Tensor) else torch.from_numpy(np.array(part))  # a mapped file is read-only


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Of each row, for targets that are shares of classes: (B, L) -> (B,)."""
    return F.cross_entropy(logits.float(), targets, reduction="none", label_smoothing=label_smoothing)


def for_pixels(data: ImagesConfig, pixels: Pixels | None) -> ImagesConfig:
    """The data in the size and the channels that a model reads, unless they say others."""
    if pixels is None:
        return data
    return data.replace(size=data.size or (pixels.height, pixels.width), channels=data.channels or pixels.channels)


def load_test_images(data: DataConfig, pixels: Pixels) -> Images:
    """The test part of what a model reads, or its validation part where there is none."""
    assert isinstance(data, ImagesConfig)
    corpus = load_images(for_pixels(data, pixels))
    return corpus.test if len(corpus.test) else corpus.valid


def measured(images: Images, data: ImagesConfig, pixels: Pixels | None) -> Pixels:
    """The shape of the images, with the scale of `pixels`, or that of `data`, or their own."""
    found = Pixels.measured(images.pixels)
    scale = (pixels.mean, pixels.std) if pixels is not None else (data.mean, data.std) if data.mean else ()
    if not scale:
        return found
    if len(scale[0]) != found.channels:
        raise UserError(f"data.mean: has {len(scale[0])} channels and the images have {found.channels}")
    return Pixels(found.height, found.width, found.channels, *scale)


class ClassifyImagesConfig(TaskConfig):
    """Learn a label for each image. `augment` changes images in training, in this order. A `teacher` is a run that was
    trained before; what it says counts beside the labels (Touvron et al. 2021)."""

    task_class = ClassifyImages
    labelled = True
    confusion = True
    command = "classify"
    reads = "images"
    kind: Literal["classify-images"] = "classify-images"
    scores: tuple[str, ...] = ("accuracy",)
    augment: tuple[AnyAugmentation, ...] = ()
    adversarial: AdversarialConfig = AdversarialConfig()
    repeats: int = Field(1, ge=1)  # how often an epoch has an image; as many images as before (Berman et al. 2019)
    teacher: str = ""  # RUN, RUN@step-N or a Hugging Face folder
    distillation: Literal["hard", "soft"] = "hard"  # learn the teacher's labels, or its probabilities
    temperature: float = Field(3.0, gt=0)  # of the probabilities
    # of the teacher in the loss; 0: a half if hard, a tenth if soft
    distillation_weight: float = Field(0.0, ge=0, lt=1)


def _in_place(augment: tuple[Any, ...]) -> tuple[Any, ...]:
    for each in augment:
        if each.kind not in IN_PLACE:
            raise ValueError(f"'{each.kind}' would not leave everything in its place; use {' or '.join(IN_PLACE)}")
    return augment


IN_PLACE = ("colour", "grey")


InPlace = Annotated[tuple[AnyAugmentation, ...], AfterValidator(_in_place)]
