"""Tagging: one label for each word, such as its part of speech."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from headwise.blocks.heads import Loss
from headwise.config.data import DataConfig, TokeniserConfig, WordsConfig
from headwise.config.decode import GREEDY, DecodeConfig
from headwise.data.collate import PairBatch
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.decode.driver import batches as by_length
from headwise.errors import UserError
from headwise.evaluate.labels import accuracy_by_text, confusion, macro_f1
from headwise.tasks.base import Evaluation, Task, device_of, evaluating
from headwise.text import EOS, PAD, UNK
from headwise.text.listed import Words
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import Watch


class Tag(Task):
    """Words and their tags, both separated by spaces."""

    kind = "tag"

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            if tokeniser.kind != "words" or tokeniser.target_side.kind != "words":
                raise UserError("tokeniser.kind: tags belong to words; use tokeniser = 'words'")
            tokeniser = tokeniser.changed(shared=False, target=WordsConfig(size=0))
        return prepare(data.changed(one_to_one=True), tokeniser)

    def teach(self, model: Any, examples: Examples) -> None:
        model.fit(examples, self.tokenisers.source.vocabulary)

    @property
    def watch(self) -> Watch:
        return Watch("accuracy", lower=False)

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        return model(batch.source[:, :-1], labels=labels(batch), smoothing=self.smoothing)

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        outputs = self.tags(model, [text for text, _ in pairs])
        references = self.references(pairs)
        return {"accuracy": accuracy_by_text(outputs, references, resamples=0).value}

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        sources = [text for text, _ in pairs]
        references = self.references(pairs)
        outputs = self.tags(model, sources)
        scores = [accuracy_by_text(outputs, references), macro_f1(outputs, references)]
        strange = cast(Words, self.tokenisers.source).strange
        known = [[number not in strange for number in ids] for ids in self.tokenisers.source.encode_batch(sources)]
        if not all(map(all, known)):
            new, true = (unseen(side, known) for side in (outputs, references))
            scores.append(accuracy_by_text(new, true, name="accuracy on unknown words"))
        names, counts = confusion(outputs, references)
        listed = [[" ".join(tags)] for tags in references]
        return Evaluation(sources, [" ".join(tags) for tags in outputs], listed, scores, names, counts)

    def references(self, pairs: Sequence[Pair]) -> list[list[str]]:
        normalise = self.tokenisers.target.normalise  # a model that never saw a capital is not asked for one
        return [normalise(tags).split() for _, tags in pairs]

    def tags(self, model: Any, texts: Sequence[str], tokens: int = 8192) -> list[list[str]]:
        """The tags of each text's words."""
        names = self.tokenisers.target.vocabulary
        found: list[list[str]] = [[] for _ in texts]
        device = device_of(model)
        with evaluating(model):
            for numbers, ids in batches(self.tokenisers.source.encode_batch(texts), tokens):
                words = [self.tokenisers.source.normalise(texts[number]).split() for number in numbers]
                for number, row, own in zip(numbers, chosen(model, ids.to(device), words).tolist(), words, strict=True):
                    found[number] = [names[tag] for tag in row[: len(own)]]
        return found


def unseen(tags: Sequence[Sequence[str]], known: Sequence[Sequence[bool]]) -> list[list[str]]:
    """The tags of the words that are not known."""
    return [
        [tag for tag, seen in zip(row, flags, strict=True) if not seen] for row, flags in zip(tags, known, strict=True)
    ]


def labels(batch: PairBatch) -> Tensor:
    """The tags without their end mark: (B, T), as many as there are words."""
    return batch.target_out.masked_fill(batch.target_out == EOS, PAD)[:, :-1]


def chosen(model: Any, ids: Tensor, words: Sequence[Sequence[str]]) -> Tensor:
    """The number of each word's tag, (B, T). A model that searches for the best sequence of tags does it itself."""
    if hasattr(model, "tag"):
        return model.tag(ids, ids != PAD, words)
    logits = model(ids)
    logits[..., : UNK + 1] = -torch.inf  # marks are no tags
    return logits.argmax(-1)


def batches(rows: Sequence[Sequence[int]], tokens: int) -> Iterator[tuple[list[int], Tensor]]:
    """Numbers of texts of like length and their padded ids, (B, T)."""
    for numbers in by_length([max(len(row), 1) for row in rows], tokens):
        ids = [torch.tensor(rows[number] or [PAD]) for number in numbers]
        yield numbers, pad_sequence(ids, batch_first=True, padding_value=PAD)
