"""Image classification: one label for an image."""

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
from headwise.blocks.losses import Loss, count_examples
from headwise.data.config import DataConfig
from headwise.data.prepare import Prepared
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.labels import confusion_matrix
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.image_classifier import ImageClassifier
from headwise.models.image_fields import ImageFields
from headwise.tasks.adversarial import AdversarialConfig, HeadedClassifier, adversarial_loss
from headwise.tasks.base import AnyModelTask, Evaluation, ImageDescription, Model, Settings, Task, TaskConfig
from headwise.tasks.classify import find_scorer, most_probable
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
AT_ONCE = 256  # images of a batch in evaluation


class LabelledImageTask(Task[Settings, Model, Images, Images]):
    """Base of tasks on images with classes: of the whole image, or of objects in it."""

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

    def set_sizes(self, model: ModelConfig) -> ModelConfig:
        return set_image_size(model, self.pixels)

    def build(self, model: ModelConfig) -> Model:
        return self.set_sizes(model).build(0, len(self.classes), self.config.model_task)

    def load_test_pairs(self, data: DataConfig) -> Images:
        return load_test_images(data, self.pixels)

    def encode_labels(self, labels: Sequence[str]) -> Tensor:
        """The number of each label, (N,)."""
        numbers = {label: number for number, label in enumerate(self.classes)}
        if unknown := sorted(set(labels) - numbers.keys()):
            raise UserError(f"data: the label '{unknown[0]}' is none of those that were learnt: {', '.join(numbers)}")
        return torch.tensor([numbers[label] for label in labels])


class ClassifyImages(LabelledImageTask["ClassifyImagesConfig", ImageClassifier]):
    """Image classification, with augmentation, knowledge distillation and adversarial training."""

    distillation: Distillation | None = None  # set where there is a teacher

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return prepare_images(data, tokeniser, collect_labels)

    def build_batches(self, examples: Images, seed: int, config: TrainConfig) -> ImageData:
        labels, repeats = self.encode_labels(examples.targets), self.config.repeats
        return ImageData(examples, lambda n: labels[torch.from_numpy(n)], seed, config.batch_size or 128, repeats)

    @cached_property
    def augmentations(self) -> list[Augment]:
        return [config.build() for config in self.config.augment]

    @property
    def teacher_run(self) -> str:
        return self.config.teacher

    def set_teacher(self, task: AnyModelTask, model: nn.Module) -> None:
        assert isinstance(task, ClassifyImages)
        teacher = Teacher(model, task.pixels, task.classes, self.classes, self.pixels.channels)
        config = self.config
        self.distillation = Distillation(teacher, config.distillation, config.temperature, config.distillation_weight)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric(self.config.scores[0], lower=False)

    def loss(self, model: ImageClassifier, batch: ImageBatch, state: LossState) -> Loss:
        images, targets = self.pixels.scale(batch.images), F.one_hot(batch.targets, len(self.classes)).float()
        for augment in self.augmentations if model.training else ():
            images, targets = augment(images, targets)
        passes = self.config.adversarial.passes(state.progress) if model.training else 1
        return adversarial_loss(self.image_loss, model, images, targets, self.config.adversarial, passes)

    def image_loss(self, model: HeadedClassifier, images: Tensor, targets: Tensor) -> Loss:
        """The loss of images (B, C, H, W) in 0..1 with soft labels (B, L)."""
        head_logits = model.head_logits(self.pixels.normalise_images(images))
        losses = [cross_entropy(logits, targets, self.label_smoothing) for logits in head_logits]
        rows = self.distillation(head_logits, losses, images) if self.distillation else torch.stack(losses).mean(0)
        nll = cross_entropy(model.ensemble(head_logits).detach(), targets).sum()
        return Loss(rows.sum(), nll, count_examples(images))

    def validate(self, model: ImageClassifier, examples: Images, pairs: Images) -> Mapping[str, float]:
        outputs = [[most_probable(row)] for row in self.predict_probabilities(model, examples.pixels)]
        references = [[label] for label in examples.targets]
        return {name: find_scorer(name)(outputs, references, 0).value for name in self.config.scores}

    def evaluate(
        self, model: ImageClassifier, pairs: Images, config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        self.encode_labels(pairs.targets)  # refuses unknown labels
        outputs = [[most_probable(row)] for row in self.predict_probabilities(model, pairs.pixels)]
        references = [[str(label)] for label in pairs.targets]
        names, counts = confusion_matrix(outputs, references)
        labels = [label for (label,) in outputs]
        scores = self.score_outputs(labels, references)
        return Evaluation(list(pairs.names), labels, references, scores, names, counts)

    def score_outputs(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        return [find_scorer(name)([[label] for label in outputs], references, resamples) for name in self.config.scores]

    def describe_image(self, model: ImageClassifier, image: Tensor, config: DecodeConfig) -> ImageDescription:
        return ImageDescription(self.predict_probabilities(model, image)[0])

    def predict_probabilities(self, model: nn.Module, images: np.ndarray | Tensor) -> list[dict[str, float]]:
        """The probability of each label, for each image (N, C, H, W) of bytes."""
        device = get_device(model)
        by_image: list[dict[str, float]] = []
        with inference_mode(model):
            for batch in batch_images(images):
                logits = model(self.pixels.normalise_images(batch.to(device)))
                by_image += [dict(zip(self.classes, row, strict=True)) for row in logits.float().softmax(-1).tolist()]
        return by_image


def set_image_size(model: ModelConfig, pixels: Pixels) -> ModelConfig:
    """The config of an image model for images of this size."""
    assert isinstance(model, ImageFields)
    return model.with_image_size(pixels.height, pixels.width, pixels.channels)


def prepare_images(
    data: DataConfig,
    tokeniser: TokeniserConfig | Tokenisers,
    train_target: Callable[[Sequence[Any], TokeniserConfig], Tokeniser],
) -> Prepared:
    """Load images. Given the tokenisers of a run, use its image size (unless `data.size` is set), normalisation and
    targets; given a config, measure the images and train the target side with `train_target`."""
    assert isinstance(data, ImagesConfig)
    pixels = tokeniser.source if isinstance(tokeniser, Tokenisers) and isinstance(tokeniser.source, Pixels) else None
    corpus = load_images(match_pixels(data, pixels))
    if isinstance(tokeniser, Tokenisers):
        target = tokeniser.target
    else:
        target = train_target(corpus.train.targets, tokeniser)
    sides = Tokenisers(measure_pixels(corpus.train, data, pixels), target)
    return Prepared(sides, corpus.train, corpus.valid, corpus.valid, corpus.test, corpus.files)


def collect_labels(targets: Sequence[str], config: TokeniserConfig | None = None) -> Labels:
    """All labels, in alphabetical order."""
    return Labels(sorted(set(targets)))


def batch_images(images: np.ndarray | Tensor, size: int = AT_ONCE) -> Iterator[Tensor]:
    """Images in batches of `size`."""
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        yield batch if isinstance(batch, Tensor) else torch.from_numpy(np.array(batch))  # a mapped file is read-only


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of each row with soft labels: (B, L) -> (B,)."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(exact, targets.to(exact.dtype), reduction="none", label_smoothing=label_smoothing)


def match_pixels(data: ImagesConfig, pixels: Pixels | None) -> ImagesConfig:
    """The data config with the size and channels of a model's images, unless it sets its own."""
    if pixels is None:
        return data
    return data.replace(size=data.size or (pixels.height, pixels.width), channels=data.channels or pixels.channels)


def load_test_images(data: DataConfig, pixels: Pixels) -> Images:
    """The test split in the model's image size, or the validation split where there is none."""
    assert isinstance(data, ImagesConfig)
    corpus = load_images(match_pixels(data, pixels))
    return corpus.test if len(corpus.test) else corpus.valid


def measure_pixels(images: Images, data: ImagesConfig, pixels: Pixels | None) -> Pixels:
    """Size of the images, with mean and standard deviation of `pixels`, else of `data`, else of the images."""
    measured = Pixels.from_images(images.pixels)
    scale = (pixels.mean, pixels.std) if pixels is not None else (data.mean, data.std) if data.mean else ()
    if not scale:
        return measured
    if len(scale[0]) != measured.channels:
        raise UserError(f"data.mean: has {len(scale[0])} channels and the images have {measured.channels}")
    return Pixels(measured.height, measured.width, measured.channels, *scale)


class ClassifyImagesConfig(TaskConfig):
    """Image classification. `augment` lists the augmentations of training images, in order. `teacher` is a trained run
    for knowledge distillation (Touvron et al. 2021)."""

    task_class = ClassifyImages
    divisible = True
    labelled = True
    confusion = True
    command = "classify"
    reads = "images"
    fits = "images"
    baselines = ("majority", "nearest neighbour")
    kind: Literal["classify-images"] = "classify-images"
    scores: tuple[str, ...] = ("accuracy",)
    augment: tuple[AnyAugmentation, ...] = ()
    adversarial: AdversarialConfig = AdversarialConfig()
    repeats: int = Field(1, ge=1)  # repeated augmentation (Berman et al. 2019): copies of an image in an epoch
    teacher: str = ""  # RUN, RUN@step-N or a Hugging Face folder
    distillation: Literal["hard", "soft"] = "hard"  # the teacher's labels, or its probabilities
    temperature: float = Field(3.0, gt=0)  # of soft distillation
    # weight of the teacher's term in the loss; 0: 0.5 if hard, 0.1 if soft
    distillation_weight: float = Field(0.0, ge=0, lt=1)


def _in_place(augment: tuple[Any, ...]) -> tuple[Any, ...]:
    for config in augment:
        if config.kind not in IN_PLACE:
            raise ValueError(f"'{config.kind}' would not leave everything in its place; use {' or '.join(IN_PLACE)}")
    return augment


IN_PLACE = ("colour", "grey")


InPlace = Annotated[tuple[AnyAugmentation, ...], AfterValidator(_in_place)]
