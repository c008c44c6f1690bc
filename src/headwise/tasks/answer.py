"""Extractive question answering (Rajpurkar et al. 2016): the answer to a question as a span of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.data.collate import PairBatch, collate
from headwise.data.config import DataConfig
from headwise.data.corpora import collect_references
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.answers import exact_match, word_f1
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.text_classifier import SpanClassifier
from headwise.tasks.base import Evaluation, PairData, TaskConfig, TextTask
from headwise.tasks.tag import batch_texts
from headwise.text import EOS, PAD
from headwise.text.config import TokeniserConfig
from headwise.text.paired import SEPARATOR
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric


@dataclass(frozen=True)
class SpanBatch(PairBatch):
    """A padded batch of pairs, with the place of each answer in its text."""

    spans: Tensor  # (B, 2)  first and last position in the source, or -1


class SpanData(PairData):
    """Batches of pairs with the spans of answers, which are found on the host."""

    def batch(self, numbers: np.ndarray) -> SpanBatch:
        pairs = collate(self.examples, numbers)
        return SpanBatch(**vars(pairs), spans=find_spans(pairs.source, pairs.target_out))


class Answer(TextTask["AnswerConfig", SpanClassifier]):
    """Extractive question answering. Sources are a question and a text with a tab between them, targets are words of
    the text.

    The span is found by comparing tokens, whatever the tokeniser; a pair whose text does not contain the answer's
    tokens has no loss.
    """

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            return prepare(data, tokeniser.replace(shared=True, pairs=True))
        return prepare(data, tokeniser.accept_pairs())

    def build(self, model: ModelConfig) -> SpanClassifier:
        return model.build(self.tokenisers.source.size, 0, self.config.model_task)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("f1", lower=False)

    def build_batches(self, examples: Examples, seed: int, config: TrainConfig) -> SpanData:
        return SpanData(examples, seed, config.tokens_per_batch, config.batch_size)

    def loss(self, model: SpanClassifier, batch: SpanBatch, state: LossState) -> Loss:
        return model(batch.source, labels=batch.spans, label_smoothing=self.label_smoothing)

    def validate(self, model: SpanClassifier, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        by_source = collect_references(pairs)
        sources, targets = list(by_source), list(by_source.values())
        outputs = self.predict_answers(model, sources)
        return {
            "f1": word_f1(outputs, targets, resamples=0).value,
            "exact_match": exact_match(outputs, targets, resamples=0).value,
        }

    def evaluate(
        self, model: SpanClassifier, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        by_source = collect_references(pairs)
        sources, targets = list(by_source), list(by_source.values())
        outputs = self.predict_answers(model, sources)
        return Evaluation(sources, outputs, targets, self.score_outputs(outputs, targets))

    def score_outputs(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        return [score(outputs, references, resamples=resamples) for score in (exact_match, word_f1)]

    def predict_answers(
        self, model: SpanClassifier, sources: Sequence[str], max_length: int = 30, tokens: int = 8192
    ) -> list[str]:
        """The best span of at most `max_length` tokens in each text."""
        for number, source in enumerate(sources, 1):
            if SEPARATOR not in source:
                raise UserError(f"text {number}: there is no tab between question and text; write QUESTION<tab>TEXT")
        answers = [""] * len(sources)
        device = get_device(model)
        rows = [[*ids, EOS] for ids in self.tokenisers.source.encode_batch(sources)]
        with inference_mode(model):
            for numbers, ids in batch_texts(rows, tokens):
                spans = best_spans(model(ids.to(device)), max_length).tolist()
                for number, (first, last) in zip(numbers, spans, strict=True):
                    answers[number] = self.tokenisers.target.decode(rows[number][first : last + 1]).strip()
        return answers


def find_spans(source: Tensor, target: Tensor) -> Tensor:
    """The first occurrence of each target (tokens, EOS, padding) in its source: (B, 2) first and last position, or -1.

    >>> find_spans(torch.tensor([[5, 2, 6, 7, 7, 8, 2]]), torch.tensor([[7, 8, 2]])).tolist()
    [[4, 5]]
    """
    spans = []
    lengths = ((target != PAD) & (target != EOS)).sum(1).tolist()
    for row, answer, length in zip(source.tolist(), target.tolist(), lengths, strict=True):
        begin = row.index(EOS) + 1 if EOS in row else 0  # the first text is the question
        matches = (at for at in range(begin, len(row)) if row[at : at + length] == answer[:length])
        first = next(matches, -1) if length else -1
        spans.append((first, first + length - 1) if first >= 0 else (-1, -1))
    return torch.tensor(spans).view(-1, 2)


def best_spans(logits: Tensor, max_length: int) -> Tensor:
    """First and last position of the span of at most `max_length` tokens with the largest sum of logits, (B, 2)."""
    first, last = logits.unbind(-1)  # (B, T, 2) -> 2 x (B, T)
    pairs = first.unsqueeze(2) + last.unsqueeze(1)  # (B, T, T)
    allowed = torch.ones_like(pairs[0], dtype=torch.bool).triu().tril(max_length - 1)
    flat = pairs.masked_fill(~allowed, -torch.inf).flatten(1).argmax(1)
    return torch.stack((flat // logits.shape[1], flat % logits.shape[1]), dim=1)


class AnswerConfig(TaskConfig):
    """Extractive question answering: find the span of a text that answers a question."""

    task_class = Answer
    pairs = True
    command = "answer"
    fits = "spans"
    baselines = ("best sentence",)
    kind: Literal["answer"] = "answer"
