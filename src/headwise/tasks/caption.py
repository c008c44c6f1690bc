"""Captioning: a sentence for an image. What reads is an encoder of images; writing, learning and scoring are those of
pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device
from headwise.blocks.heads import Loss
from headwise.data.collate import PairBatch
from headwise.data.config import DataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.evaluate.accuracy import accuracy
from headwise.evaluate.score import Score
from headwise.tasks.base import ImageDescription, PairData
from headwise.tasks.classify_images import Augment, InPlace, load_test_images, prepared
from headwise.tasks.transduce import Transduce, TransduceConfig
from headwise.text.base import Tokeniser
from headwise.text.config import TokeniserConfig
from headwise.text.normalise import PLAIN
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState
from headwise.vision.images import Images
from headwise.vision.pixels import Pixels


class Picture(str):
    """The name of an image, with its pixels: what stands for a source where sources are texts."""

    pixels: np.ndarray  # (C, H, W) bytes

    def __new__(cls, name: str, pixels: np.ndarray) -> Picture:
        picture = super().__new__(cls, name)
        picture.pixels = pixels
        return picture


class CaptionData(PairData):
    """Images and the tokens of their captions, in batches; a batch's sources are images, of bytes or normalised."""

    def __init__(self, images: Images, captions: Examples, seed: int, pixels: Pixels | None = None, size: int = 64):
        super().__init__(captions, seed, batch_size=size)
        self.images, self.pixels = images, pixels

    def batch(self, numbers: np.ndarray) -> PairBatch:
        images = torch.from_numpy(np.ascontiguousarray(self.images.pixels[numbers]))  # (B, C, H, W)
        source = images if self.pixels is None else self.pixels.normalised(images)
        return replace(super().batch(numbers), source=source)


class Caption(Transduce):
    """Images and sentences about them, any of which is right."""

    config: CaptionConfig

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        found = prepared(data, tokeniser, words)
        return replace(found, valid_pairs=pairs_of(found.valid), test_pairs=pairs_of(found.test_pairs))

    @property
    def pixels(self) -> Pixels:
        assert isinstance(self.tokenisers.source, Pixels)
        return self.tokenisers.source

    @property
    def units(self) -> str:
        return f"vocabulary {self.tokenisers.target.size:,}"

    def build(self, model: Any) -> nn.Module:
        sized = model.with_image_size(self.pixels.height, self.pixels.width, self.pixels.channels)
        built: nn.Module = sized.build(0, self.tokenisers.target.size, self.config.shape)
        return built

    def data(self, examples: Images, seed: int, config: TrainConfig) -> CaptionData:
        return CaptionData(examples, self.tokenised(examples), seed, size=config.batch_size or 64)

    def tokenised(self, images: Images) -> Examples:
        """Their captions; a source is an image, which has no tokens."""
        return Examples.of(((), ids) for ids in self.tokenisers.target.encode_batch(images.targets))

    def load_test_pairs(self, data: DataConfig) -> list[Pair]:
        return pairs_of(load_test_images(data, self.pixels))

    @cached_property
    def augmentations(self) -> list[Augment]:
        return [config.build() for config in self.config.augment]

    def loss(self, model: nn.Module, batch: PairBatch, state: LossState) -> Loss:
        images = self.pixels.scaled(batch.source)
        for augment in self.augmentations if model.training else ():
            images, _ = augment(images, images.new_zeros(len(images), 0))
        return super().loss(model, replace(batch, source=self.pixels.normalised(images)), state)

    def examples(self, pairs: Sequence[Any]) -> Images:
        pictures, captions = zip(*pairs, strict=True)
        return Images(np.stack([picture.pixels for picture in pictures]), captions, pictures)

    def evaluate_outputs(self, examples: Images) -> CaptionData:
        return CaptionData(examples, self.tokenised(examples), 0, self.pixels)

    def outputs(self, model: Any, sources: Sequence[Any], config: DecodeConfig) -> list[str]:
        return self.caption_images(model, np.stack([picture.pixels for picture in sources]), config)

    def describe_image(self, model: Any, image: Tensor, config: DecodeConfig) -> ImageDescription:
        return ImageDescription(sentence=self.caption_images(model, image, config)[0])

    def caption_images(self, model: Any, images: np.ndarray | Tensor, config: DecodeConfig) -> list[str]:
        """A sentence for each image (N, C, H, W) of bytes."""
        read = [self.pixels.normalised(torch.as_tensor(image)[None])[0] for image in images]
        if config.replace_unknown:
            raise UserError("decode.replace_unknown: an image has no words to take instead; leave it out")
        found = decode(model, read, config, get_device(model), self.tokenisers.target)
        return [self.tokenisers.target.decode(own[0].ids) for own in found]

    def scores(
        self, outputs: Sequence[str], listed: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        normalise = self.tokenisers.target.normalise
        right = [output in [normalise(each) for each in own] for output, own in zip(outputs, listed, strict=True)]
        exact = replace(accuracy(right, [True] * len(right), resamples), name="exact match")
        return [*super().scores(outputs, listed, resamples, language), exact]


def words(captions: Sequence[Any], config: TokeniserConfig) -> Tokeniser:
    """The tokeniser of captions, which is the target's where there are two."""
    if not all(isinstance(caption, str) for caption in captions):
        raise UserError("data: these images have no captions; use data.name = 'scene-captions' or format = 'captions'")
    return Tokenisers.train([("", caption) for caption in captions], config, PLAIN).target


def pairs_of(images: Images) -> list[Pair]:
    """Each image with its caption, as sources and targets."""
    rows = zip(images.names, images.pixels, images.targets, strict=True)
    return [(Picture(name, pixels), caption) for name, pixels, caption in rows]


class CaptionConfig(TransduceConfig):
    """Learn a sentence for each image. It is scored as other texts are, and by how many are right to the word."""

    task_class = Caption
    command = "caption"
    reads = "images"
    kind: Literal["caption"] = "caption"  # type: ignore[assignment]
    score: Literal["bleu", "ser", "wer", "rouge"] = "bleu"
    prefix_lm: Literal[False] = False  # an image is no part of a text
    augment: InPlace = ()
