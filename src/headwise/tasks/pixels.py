"""Autoregressive modelling of pixels (van den Oord et al. 2016; Chen et al. 2020, Image GPT): an image is a sequence of
pixel tokens, and any language model predicts each from those above and to the left of it.

p(image) = prod_t p(x_t | x_1, ..., x_{t-1}). The score is bits per dimension, -log2 p(image) / (H W C), of images
quantised to `tokeniser.levels` levels; log2(levels) is that of uniform noise.

Letters: N images, B rows, T = H W C pixel tokens of an image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.data.blocks import TextBatch
from headwise.data.config import DataConfig
from headwise.data.prepare import Prepared
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.generator import Generator
from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.tasks.base import Evaluation, Sample, Task, TaskConfig
from headwise.tasks.classify_images import batch_images, load_test_images, prepare_images
from headwise.tasks.language_model import AnyLanguageModel, CountModel, score_tokens
from headwise.text import BOS
from headwise.text.config import CharactersConfig, PixelLevelsConfig, TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric
from headwise.vision.batches import ImageBatch, ImageData
from headwise.vision.images import Images
from headwise.vision.pixel_levels import FIRST, PixelLevels
from headwise.vision.pixels import Pixels


class PixelModelling(Task["PixelsConfig", AnyLanguageModel, Images, Images]):
    """Autoregressive modelling of pixels. The source side has the size of the images, the target side their levels."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, Tokenisers):
            return prepare_images(data, tokeniser, lambda *_: tokeniser.target)
        if tokeniser == CharactersConfig():  # [tokeniser] is left out
            tokeniser = PixelLevelsConfig()
        if not isinstance(tokeniser, PixelLevelsConfig):
            raise UserError("tokeniser.kind: pixels are quantised, not tokenised; use 'levels', or leave it out")
        levels = tokeniser.levels
        empty = PixelLevels(levels, np.zeros((0, levels), np.int64))
        prepared = prepare_images(data, tokeniser, lambda *_: empty)
        target = PixelLevels.from_images(prepared.train.pixels, levels)
        sides = Tokenisers(prepared.tokenisers.source, target)
        return Prepared(
            sides, prepared.train, prepared.valid, prepared.valid_pairs, prepared.test_pairs, prepared.files
        )

    @property
    def pixels(self) -> Pixels:
        assert isinstance(self.tokenisers.source, Pixels)
        return self.tokenisers.source

    @property
    def levels(self) -> PixelLevels:
        assert isinstance(self.tokenisers.target, PixelLevels)
        return self.tokenisers.target

    @property
    def image(self) -> tuple[int, int, int]:
        return self.pixels.channels, self.pixels.height, self.pixels.width

    @property
    def units(self) -> str:
        return f"{self.levels.levels} levels, {len(self.levels.counts):,} pixel tokens an image"

    def build(self, model: ModelConfig) -> AnyLanguageModel:
        built: AnyLanguageModel = model.build(self.levels.size, 0, self.config.model_task)
        return built

    def build_batches(self, examples: Images, seed: int, config: TrainConfig) -> ImageData:
        return ImageData(examples, lambda numbers: torch.from_numpy(numbers), seed, config.batch_size or 32)

    def load_test_pairs(self, data: DataConfig) -> Images:
        return load_test_images(data, self.pixels)

    def fit_model(self, model: AnyLanguageModel, examples: Images) -> None:
        assert isinstance(model, CountModel)
        model.fit(self.levels.encode_images(torch.from_numpy(np.array(examples.pixels))).numpy())

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("bits_per_dim", lower=True)

    def shift(self, images: Tensor) -> TextBatch:
        """Inputs BOS, x_1, ..., x_{T-1} and labels x_1, ..., x_T for bytes (B, C, H, W)."""
        labels = self.levels.encode_images(images)
        start = torch.full_like(labels[:, :1], BOS)
        return TextBatch(torch.cat((start, labels[:, :-1]), dim=1), labels)

    def loss(self, model: AnyLanguageModel, batch: ImageBatch, state: LossState) -> Loss:
        tokens = self.shift(batch.images)
        return model(tokens.ids, labels=tokens.labels, label_smoothing=self.label_smoothing)

    def validate(self, model: AnyLanguageModel, examples: Images, pairs: Images) -> Mapping[str, float]:
        return {"bits_per_dim": bits_per_dim(self.compute_nll(model, examples), len(self.levels.counts), 0).value}

    def evaluate(
        self, model: AnyLanguageModel, pairs: Images, config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Bits per dimension of the model, and of the per-pixel histogram of the training images."""
        nll, count = self.compute_nll(model, pairs), len(self.levels.counts)
        histogram = bits_per_dim(self.compute_histogram_nll(pairs), count)
        return Evaluation(
            [], [], [], [bits_per_dim(nll, count), Score("histogram", histogram.value, histogram.low, histogram.high)]
        )

    def compute_nll(self, model: AnyLanguageModel, images: Images) -> np.ndarray:
        """The negative log-likelihood of each image, (N,), in nats."""
        device, rows = get_device(model), []
        size = max(1, 2**24 // (self.levels.size * max(len(self.levels.counts), 1)))
        with inference_mode(model):
            for batch in batch_images(images.pixels, size):
                rows.append(score_tokens(model, self.shift(batch).to(device)).double().sum(1).cpu())
        return torch.cat(rows).numpy()

    def compute_histogram_nll(self, images: Images) -> np.ndarray:
        """The negative log-likelihood of each image by the histogram of each pixel, (N,), in nats."""
        ids = self.levels.encode_images(torch.from_numpy(np.array(images.pixels))).numpy() - FIRST  # (N, T)
        table: np.ndarray = self.levels.histogram_nll
        return np.take_along_axis(table, ids.T, axis=1).sum(0)

    def complete_images(
        self, model: AnyLanguageModel, images: np.ndarray, keep: float = 0.5, temperature: float = 1.0, seed: int = 0
    ) -> np.ndarray:
        """Images (N, C, H, W) of bytes with the share `keep` of their rows given, and the rows below generated."""
        ids = self.levels.encode_images(torch.from_numpy(np.ascontiguousarray(images)))
        channels, height, width = self.image
        given = round(keep * height) * width * channels
        start = torch.full_like(ids[:, :1], BOS)
        prefix = torch.cat((start, ids[:, :given]), dim=1).to(get_device(model))
        random = torch.Generator().manual_seed(seed)
        with inference_mode(model):  # no search of `decode`: the last pixel is followed by no EOS, and never read
            generator = cast(Generator, model)
            state = generator.start(prefix[:, :-1])
            while prefix.shape[1] <= ids.shape[1]:
                logits, state = generator.step(prefix[:, -1], state)
                level = sample_level(logits[:, FIRST:].float().cpu(), temperature, random) + FIRST  # (N,)
                prefix = torch.cat((prefix, level.unsqueeze(1).to(prefix.device)), dim=1)
        return self.levels.decode_images(prefix[:, 1:], self.image)

    def draw_samples(self, model: AnyLanguageModel, pairs: Images, count: int) -> list[Sample]:
        return []  # `headwise generate` draws pictures


def sample_level(logits: Tensor, temperature: float, random: torch.Generator) -> Tensor:
    """A level for each row of logits (N, L); the most probable one if the temperature is 0."""
    if not temperature:
        return logits.argmax(-1)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=random)[:, 0]


def bits_per_dim(nll: np.ndarray, dimensions: int, resamples: int = 1000) -> Score:
    """Bits per dimension: nats of each image (N,) over ln 2 and the number of its pixel tokens, with the interval.

    >>> bits_per_dim(np.array([np.log(16), np.log(4)]), 3, 0).value
    1.0
    """

    def mean(sums: np.ndarray) -> np.ndarray:
        return sums[:, 0] / (sums[:, 1] * dimensions * np.log(2))

    statistics = np.column_stack([nll, np.ones(len(nll))])
    low, high = bootstrap_interval(statistics, mean, resamples)
    value = float(mean(statistics.sum(0, keepdims=True))[0])
    return Score("bits/dim", value, low, high, f"{len(nll)} images of {dimensions} pixel tokens")


class PixelsConfig(TaskConfig):
    """Autoregressive modelling of pixels: images as sequences of pixel tokens, for any language model."""

    task_class = PixelModelling
    model_of = "language-model"
    command = "generate"
    reads = "images"
    kind: Literal["pixels"] = "pixels"
