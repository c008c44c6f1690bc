"""Answers as spans of a text (Rajpurkar et al. 2016): where in the second text stands what the first one asks for?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.heads import Loss
from headwise.data.collate import PairBatch
from headwise.data.config import DataConfig
from headwise.data.corpora import references
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.answers import exact_match, overlap
from headwise.tasks.base import Evaluation, Task, TaskConfig
from headwise.tasks.tag import batch_texts
from headwise.text import EOS, PAD
from headwise.text.config import TokeniserConfig
from headwise.text.paired import BETWEEN
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import LossState, Metric


class Answer(Task["AnswerConfig"]):
    """Sources are a question and a text with a tab between them, targets are words of the text.

    Where the answer stands is found by its tokens, so that every tokeniser will do; a pair whose text does not contain
    them counts for nothing in training.
    """

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            return prepare(data, tokeniser.replace(shared=True, pairs=True))
        return prepare(data, tokeniser.paired())

    def build(self, model: Any) -> nn.Module:
        return model.build(self.tokenisers.source.size, 0, self.config.shape)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("f1", lower=False)

    def loss(self, model: nn.Module, batch: PairBatch, state: LossState) -> Loss:
        return model(batch.source, labels=spans(batch.source, batch.target_out), label_smoothing=self.label_smoothing)

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        listed = references(pairs)
        outputs = self.predict_answers(model, list(listed))
        return {
            "f1": overlap(outputs, list(listed.values()), resamples=0).value,
            "exact_match": exact_match(outputs, list(listed.values()), resamples=0).value,
        }

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        listed = references(pairs)
        sources, targets = list(listed), list(listed.values())
        outputs = self.predict_answers(model, sources)
        return Evaluation(sources, outputs, targets, [exact_match(outputs, targets), overlap(outputs, targets)])

    def predict_answers(self, model: Any, sources: Sequence[str], longest: int = 30, tokens: int = 8192) -> list[str]:
        """The best span of at most `longest` tokens in each text."""
        for number, source in enumerate(sources, 1):
            if BETWEEN not in source:
                raise UserError(f"text {number}: a question is asked of a text; put a tab between the two")
        found = [""] * len(sources)
        device = get_device(model)
        rows = [[*ids, EOS] for ids in self.tokenisers.source.encode_batch(sources)]
        with inference_mode(model):
            for numbers, ids in batch_texts(rows, tokens):
                for number, (first, last) in zip(numbers, best(model(ids.to(device)), longest).tolist(), strict=True):
                    found[number] = self.tokenisers.target.decode(rows[number][first : last + 1]).strip()
        return found


def spans(source: Tensor, target: Tensor) -> Tensor:
    """Where each target (tokens EOS padding) first stands in its source: (B, 2) first and last place, -1 if nowhere.

    >>> spans(torch.tensor([[5, 2, 6, 7, 7, 8, 2]]), torch.tensor([[7, 8, 2]])).tolist()
    [[4, 5]]
    """
    found = []
    lengths = ((target != PAD) & (target != EOS)).sum(1).tolist()
    for row, wanted, length in zip(source.tolist(), target.tolist(), lengths, strict=True):
        begin = row.index(EOS) + 1 if EOS in row else 0  # the first text is the question
        places = (place for place in range(begin, len(row)) if row[place : place + length] == wanted[:length])
        first = next(places, -1) if length else -1
        found.append((first, first + length - 1) if first >= 0 else (-1, -1))
    return torch.tensor(found, device=source.device)


def best(logits: Tensor, longest: int) -> Tensor:
    """The first and last place with the largest sum of scores, (B, 2), not further apart than `longest` tokens."""
    first, last = logits.unbind(-1)  # (B, T, 2) -> 2 x (B, T)
    pairs = first.unsqueeze(2) + last.unsqueeze(1)  # (B, T, T)
    allowed = torch.ones_like(pairs[0], dtype=torch.bool).triu().tril(longest - 1)
    flat = pairs.masked_fill(~allowed, -torch.inf).flatten(1).argmax(1)
    return torch.stack((flat // logits.shape[1], flat % logits.shape[1]), dim=1)


class AnswerConfig(TaskConfig):
    """Learn where in a text the answer to a question stands."""

    task_class = Answer
    command = "answer"
    kind: Literal["answer"] = "answer"
