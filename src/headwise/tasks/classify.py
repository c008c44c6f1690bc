"""Classification: one label for a text, such as its sentiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from headwise.blocks.heads import Loss
from headwise.config.data import DataConfig, LabelsConfig, TokeniserConfig
from headwise.config.decode import GREEDY, DecodeConfig
from headwise.data.collate import PairBatch
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.evaluate.labels import accuracy_by_text, confusion, macro_f1
from headwise.tasks.base import Evaluation, Task, device_of, evaluating
from headwise.tasks.tag import batches
from headwise.text import EOS, UNK
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import Watch


class Classify(Task):
    """Texts and their labels."""

    kind = "classify"

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            tokeniser = tokeniser.changed(shared=False, target=LabelsConfig())
        return prepare(data, tokeniser)

    @property
    def watch(self) -> Watch:
        return Watch("accuracy", lower=False)

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        return model(batch.source, labels=batch.target_out[:, 0], smoothing=self.smoothing)

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        outputs = [[best(found)] for found in self.probabilities(model, [text for text, _ in pairs])]
        return {"accuracy": accuracy_by_text(outputs, self.references(pairs), resamples=0).value}

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        sources = [text for text, _ in pairs]
        references = self.references(pairs)
        outputs = [[best(found)] for found in self.probabilities(model, sources)]
        names, counts = confusion(outputs, references)
        scores = [accuracy_by_text(outputs, references), macro_f1(outputs, references)]
        return Evaluation(sources, [label for (label,) in outputs], references, scores, names, counts)

    def references(self, pairs: Sequence[Pair]) -> list[list[str]]:
        normalise = self.tokenisers.target.normalise  # a model that never saw a capital is not asked for one
        return [[" ".join(normalise(label).split())] for _, label in pairs]

    def probabilities(self, model: Any, texts: Sequence[str], tokens: int = 8192) -> list[dict[str, float]]:
        """The probability of each label for each text."""
        names = self.tokenisers.target.vocabulary[UNK + 1 :]
        found: list[dict[str, float]] = [{} for _ in texts]
        device = device_of(model)
        rows = [[*ids, EOS] for ids in self.tokenisers.source.encode_batch(texts)]
        with evaluating(model):
            for numbers, ids in batches(rows, tokens):
                probabilities = torch.softmax(model(ids.to(device))[:, UNK + 1 :].float(), -1)  # marks are no labels
                for number, row in zip(numbers, probabilities.tolist(), strict=True):
                    found[number] = dict(zip(names, row, strict=True))
        return found


def best(found: dict[str, float]) -> str:
    return max(found, key=found.__getitem__)
