"""Regression: a number for a text or a pair of texts, such as their similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss, count_examples
from headwise.data.collate import PairBatch, collate
from headwise.data.config import DataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.agreement import pearson, spearman
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.text_classifier import SequenceClassifier
from headwise.tasks.auxiliary_loss import AuxiliaryFields, add_auxiliary, build_classifier
from headwise.tasks.base import Evaluation, PairData, TextTask
from headwise.tasks.classify import prepare_labelled
from headwise.tasks.tag import batch_texts, encode_texts
from headwise.text import UNK
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric
from headwise.utils.numbers import parse_decimal


@dataclass(frozen=True)
class NumberBatch(PairBatch):
    """A padded batch of texts, with the number of each."""

    numbers: Tensor  # (B,)


class NumberData(PairData):
    """Batches of texts and numbers; `values` (V,) are the numbers of the labels."""

    def __init__(self, values: Tensor, *arguments: Any):
        super().__init__(*arguments)
        self.values = values

    def batch(self, numbers: np.ndarray) -> NumberBatch:
        pairs = collate(self.examples, numbers)
        return NumberBatch(**vars(pairs), numbers=self.values[pairs.target_out[:, 0]])


class Regress(TextTask["RegressConfig", SequenceClassifier]):
    """Regression: a sequence classifier with one output, trained by least squares. Labels are numbers.

    The output is in the units of the labels. It learns as that of standardised labels would, y = mean + std · head(x):
    initial weights and learning rate of the head are multiplied by the standard deviation, the loss is divided by the
    variance. Otherwise prices or years were out of reach of a head that begins near zero.
    """

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return prepare_labelled(data, tokeniser)

    def build(self, model: ModelConfig) -> SequenceClassifier:
        """The model, whose first output is about the mean of the labels."""
        built = build_classifier(self.config, model, self.tokenisers.source.size, 1)
        mean, deviation = self.label_statistics
        with torch.no_grad():
            if isinstance(bias := getattr(built.head, "bias", None), Tensor):
                bias.add_(mean)
            built.head.table.weight.mul_(deviation)
        return built

    @cached_property
    def label_statistics(self) -> tuple[float, float]:
        """Mean and standard deviation of the different labels; 0 and 1 where they are no numbers, as those of an
        imported model."""
        names = self.tokenisers.target.vocabulary[UNK + 1 :]
        if not names or not all(map(is_number, names)):
            return 0.0, 1.0
        values = torch.tensor([parse_number(name) for name in names], dtype=torch.float64)
        return float(values.mean()), float(values.std(correction=0)) or 1.0

    @property
    def lr_scales(self) -> Mapping[str, float]:
        return {"head.table.weight": self.label_statistics[1], "head.bias": self.label_statistics[1]}

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("pearson", lower=False)

    def build_batches(self, examples: Examples, seed: int, config: TrainConfig) -> NumberData:
        return NumberData(self.label_values, examples, seed, config.tokens_per_batch, config.batch_size)

    def loss(self, model: SequenceClassifier, batch: NumberBatch, state: LossState) -> Loss:
        if not self.config.auxiliary:
            return self.squared_error(model(batch.source), batch)
        outputs, language_model_loss = model(batch.source, language_model=True)
        return add_auxiliary(self.squared_error(outputs, batch), language_model_loss, self.config.auxiliary)

    def squared_error(self, outputs: Tensor, batch: NumberBatch) -> Loss:
        """The squared error of outputs (B, 1), relative to the variance of the labels."""
        squares = ((outputs[:, 0] - batch.numbers) / self.label_statistics[1]).square()
        return Loss(squares.sum(), squares.detach().sum(), count_examples(squares))

    @cached_property
    def label_values(self) -> Tensor:
        """The number of each label, by id."""
        names = self.tokenisers.target.vocabulary[UNK + 1 :]
        return torch.tensor([0.0] * (UNK + 1) + [parse_number(name) for name in names])

    def validate(self, model: SequenceClassifier, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        values = self.predict_values(model, [text for text, _ in pairs])
        return {score.name.lower(): score.value for score in score_values(values, pairs, resamples=0)}

    def evaluate(
        self, model: SequenceClassifier, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        sources = [text for text, _ in pairs]
        values = self.predict_values(model, sources)
        outputs = [f"{value:.3f}" for value in values]
        return Evaluation(sources, outputs, [[label] for _, label in pairs], score_values(values, pairs))

    def score_outputs(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        pairs = [("", label) for (label,) in references]
        return score_values([parse_number(output) for output in outputs], pairs, resamples)

    def predict_values(self, model: SequenceClassifier, texts: Sequence[str], tokens: int = 8192) -> list[float]:
        """The model's output for each text."""
        values = [0.0] * len(texts)
        device = get_device(model)
        rows = encode_texts(self.tokenisers.source, texts, model.max_length)
        with inference_mode(model):
            for numbers, ids in batch_texts(rows, tokens):
                for number, value in zip(numbers, model(ids.to(device))[:, 0].tolist(), strict=True):
                    values[number] = value
        return values


def score_values(values: Sequence[float], pairs: Sequence[Pair], resamples: int = 1000) -> list[Score]:
    true = [parse_number(label) for _, label in pairs]
    return [pearson(values, true, resamples), spearman(values, true, resamples)]


def is_number(text: str) -> bool:
    """Whether a label is a finite number."""
    return parse_decimal(text) is not None


def parse_number(text: str) -> float:
    """
    >>> parse_number("3.8")
    3.8
    """
    if (number := parse_decimal(text)) is None:
        raise UserError(f"the label '{text}' is not a number, which a regression needs; choose the task classify")
    return number


class RegressConfig(AuxiliaryFields):
    """Regression: a number for each text, by a classifier with one output."""

    task_class = Regress
    pairs = True
    labelled = True
    command = "classify"
    fits = "numbers"
    baselines = ("mean", "bag of words (ridge)")
    model_of = "classify"
    kind: Literal["regress"] = "regress"
