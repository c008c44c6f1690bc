"""Image captioning: a sentence for an image. The encoder reads images; decoder, loss and scores are those of
sequence-to-sequence (tasks/transduce.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from headwise.blocks.evaluation import get_device
from headwise.blocks.losses import Loss
from headwise.data.collate import PairBatch
from headwise.data.config import DataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import Engine, decode
from headwise.decode.generator import Generator
from headwise.errors import UserError
from headwise.evaluate.accuracy import accuracy
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.tasks.base import ImageDescription, PairData
from headwise.tasks.classify_images import Augment, InPlace, load_test_images, prepare_images, set_image_size
from headwise.tasks.transduce import GenerationTask, SequenceModel, TransduceConfig
from headwise.text.base import Tokeniser
from headwise.text.config import TokeniserConfig
from headwise.text.normalise import PLAIN
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState
from headwise.vision.images import Images
from headwise.vision.pixels import Pixels


class Picture(str):
    """The source of a captioning pair: the name of an image, with its pixels."""

    pixels: np.ndarray  # (C, H, W) bytes

    def __new__(cls, name: str, pixels: np.ndarray) -> Picture:
        picture = super().__new__(cls, name)
        picture.pixels = pixels
        return picture


class CaptionData(PairData):
    """Batches of images and the tokens of their captions; with `pixels`, the images are normalised."""

    def __init__(self, images: Images, captions: Examples, seed: int, pixels: Pixels | None = None, size: int = 64):
        super().__init__(captions, seed, batch_size=size)
        self.images, self.pixels = images, pixels

    def batch(self, numbers: np.ndarray) -> PairBatch:
        images = torch.from_numpy(np.ascontiguousarray(self.images.pixels[numbers]))  # (B, C, H, W)
        source = images if self.pixels is None else self.pixels.normalise_images(images)
        return replace(super().batch(numbers), source=source)


class Caption(GenerationTask["CaptionConfig", Images]):
    """Image captioning; an image may have several reference captions."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        prepared = prepare_images(data, tokeniser, train_caption_tokeniser)
        return replace(
            prepared, valid_pairs=pair_captions(prepared.valid), test_pairs=pair_captions(prepared.test_pairs)
        )

    @property
    def pixels(self) -> Pixels:
        assert isinstance(self.tokenisers.source, Pixels)
        return self.tokenisers.source

    @property
    def units(self) -> str:
        return f"vocabulary {self.tokenisers.target.size:,}"

    def set_sizes(self, model: ModelConfig) -> ModelConfig:
        return set_image_size(model, self.pixels)

    def build(self, model: ModelConfig) -> SequenceModel:
        return self.set_sizes(model).build(0, self.tokenisers.target.size, self.config.model_task)

    def build_batches(self, examples: Images, seed: int, config: TrainConfig) -> CaptionData:
        return CaptionData(examples, self.tokenise_captions(examples), seed, size=config.batch_size or 64)

    def tokenise_captions(self, images: Images) -> Examples:
        """The captions of images; the source side has no tokens."""
        return Examples.from_rows(((), ids) for ids in self.tokenisers.target.encode_batch(images.targets))

    def load_test_pairs(self, data: DataConfig) -> list[Pair]:
        return pair_captions(load_test_images(data, self.pixels))

    @cached_property
    def augmentations(self) -> list[Augment]:
        return [config.build() for config in self.config.augment]

    def loss(self, model: SequenceModel, batch: PairBatch, state: LossState) -> Loss:
        images = self.pixels.scale(batch.source)
        for augment in self.augmentations if model.training else ():
            images, _ = augment(images, images.new_zeros(len(images), 0))
        return super().loss(model, replace(batch, source=self.pixels.normalise_images(images)), state)

    def build_examples(self, pairs: Sequence[Pair]) -> Images:
        sources, captions = zip(*pairs, strict=True)
        return Images(stack_pixels(sources), captions, sources)

    def batch_examples(self, examples: Images) -> CaptionData:
        return CaptionData(examples, self.tokenise_captions(examples), 0, self.pixels)

    def decode_outputs(self, model: Generator | Engine, sources: Sequence[str], config: DecodeConfig) -> list[str]:
        return self.caption_images(model, stack_pixels(sources), config)

    def describe_image(self, model: Generator | Engine, image: Tensor, config: DecodeConfig) -> ImageDescription:
        return ImageDescription(sentence=self.caption_images(model, image, config)[0])

    def caption_images(self, model: Generator | Engine, images: np.ndarray | Tensor, config: DecodeConfig) -> list[str]:
        """A sentence for each image (N, C, H, W) of bytes."""
        sources = [self.pixels.normalise_images(torch.as_tensor(image)[None])[0] for image in images]
        if config.replace_unknown:
            raise UserError("decode.replace_unknown: an image has no words to take instead; leave it out")
        hypotheses = decode(model, sources, config, get_device(model), self.tokenisers.target)
        return [self.tokenisers.target.decode(ranked[0].ids) for ranked in hypotheses]

    def score_outputs(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        normalise, pairs = self.tokenisers.target.normalise, zip(outputs, references, strict=True)
        right = [output in [normalise(text) for text in texts] for output, texts in pairs]
        exact = replace(accuracy(right, [True] * len(right), resamples), name="exact match")
        return [*super().score_outputs(outputs, references, resamples, language), exact]


def stack_pixels(sources: Sequence[str]) -> np.ndarray:
    """The pixels of `Picture`s, (N, C, H, W)."""
    return np.stack([source.pixels for source in sources if isinstance(source, Picture)])


def train_caption_tokeniser(captions: Sequence[Any], config: TokeniserConfig) -> Tokeniser:
    """The tokeniser of captions; with two sides, the target's."""
    if not all(isinstance(caption, str) for caption in captions):
        raise UserError("data: these images have no captions; use data.name = 'scene-captions' or format = 'captions'")
    return Tokenisers.train([("", caption) for caption in captions], config, PLAIN).target


def pair_captions(images: Images) -> list[Pair]:
    """Pairs of an image, as a `Picture`, and its caption."""
    rows = zip(images.names, images.pixels, images.targets, strict=True)
    return [(Picture(name, pixels), caption) for name, pixels, caption in rows]


class CaptionConfig(TransduceConfig):
    """Image captioning. Scores are those of sequence-to-sequence, and exact match."""

    task_class = Caption
    divisible = False
    command = "caption"
    reads = "images"
    fits = "captions"
    baselines = ("nearest neighbour",)
    kind: Literal["caption"] = "caption"  # type: ignore[assignment]
    score: Literal["bleu", "ser", "wer", "rouge"] = "bleu"
    prefix_lm: Literal[False] = False  # the source is no text
    extra_tokens: Literal[0] = 0
    augment: InPlace = ()
