"""Tagging: one label for each word, such as its part of speech."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.heads import Loss
from headwise.data.collate import PairBatch
from headwise.data.config import DataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.data.word_pieces import split_words, tokenise_tagged, words
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import batches as by_length
from headwise.errors import UserError
from headwise.evaluate.labels import accuracy_by_text, confusion, macro_f1
from headwise.tasks.base import Evaluation, Task, TaskConfig
from headwise.text import EOS, PAD, UNK
from headwise.text.config import TokeniserConfig, WordsConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Words
from headwise.train.state import LossState, Metric


class Tag(Task["TagConfig"]):
    """Words and their tags, both separated by spaces."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            tokeniser = tokeniser.replace(shared=False, target=WordsConfig(size=0))
        return prepare(data.replace(one_to_one=TagConfig.one_to_one), tokeniser, tokenise_tagged)

    def fit_model(self, model: Any, examples: Examples) -> None:
        if not isinstance(self.tokenisers.source, Words):
            raise UserError("tokeniser.kind: this model counts words and their tags; use tokeniser = 'words'")
        model.fit(examples, self.tokenisers.source.vocabulary)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("accuracy", lower=False)

    def loss(self, model: nn.Module, batch: PairBatch, state: LossState) -> Loss:
        return model(batch.source[:, :-1], labels=labels(batch), label_smoothing=self.label_smoothing)

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        outputs = self.predict_tags(model, [text for text, _ in pairs])
        references = self.references(pairs)
        return {"accuracy": accuracy_by_text(outputs, references, resamples=0).value}

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        sources = [text for text, _ in pairs]
        references = self.references(pairs)
        outputs = self.predict_tags(model, sources)
        scores = [accuracy_by_text(outputs, references), macro_f1(outputs, references)]
        known = self.known(sources)
        if not all(map(all, known)):
            new, true = (unseen(side, known) for side in (outputs, references))
            scores.append(accuracy_by_text(new, true, name="accuracy on unknown words"))
        names, counts = confusion(outputs, references)
        listed = [[" ".join(tags)] for tags in references]
        return Evaluation(sources, [" ".join(tags) for tags in outputs], listed, scores, names, counts)

    def references(self, pairs: Sequence[Pair]) -> list[list[str]]:
        normalise = self.tokenisers.target.normalise  # a model that never saw a capital is not asked for one
        return [normalise(tags).split() for _, tags in pairs]

    def known(self, texts: Sequence[str]) -> list[list[bool]]:
        """Whether each word is in the vocabulary; in pieces every word is."""
        source = self.tokenisers.source
        if not isinstance(source, Words):
            return [[True] * len(words(source, text)) for text in texts]
        return [[number % source.size not in source.strange for number in ids] for ids in source.encode_batch(texts)]

    def predict_tags(self, model: Any, texts: Sequence[str], tokens: int = 8192) -> list[list[str]]:
        """The tags of each text's words."""
        names, source = self.tokenisers.target.vocabulary, self.tokenisers.source
        found: list[list[str]] = [[] for _ in texts]
        device = get_device(model)
        cut = split_words(source, texts)
        with inference_mode(model):
            for numbers, ids in batch_texts([[number for piece in each for number in piece] for each in cut], tokens):
                own = [words(source, texts[number]) for number in numbers]
                for number, row in zip(numbers, chosen(model, ids.to(device), own).tolist(), strict=True):
                    firsts = accumulate(
                        map(len, cut[number][:-1]), initial=0
                    )  # a word's tag is that of its first piece
                    found[number] = [names[row[first]] for first in firsts] if cut[number] else []
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
    logits[..., : UNK + 1] = -torch.inf  # special tokens are no tags
    return logits.argmax(-1)


def batch_texts(rows: Sequence[Sequence[int]], tokens: int) -> Iterator[tuple[list[int], Tensor]]:
    """Numbers of texts of like length and their padded ids, (B, T)."""
    for numbers in by_length([max(len(row), 1) for row in rows], tokens):
        ids = [torch.tensor(rows[number] or [PAD]) for number in numbers]
        yield numbers, pad_sequence(ids, batch_first=True, padding_value=PAD)


class TagConfig(TaskConfig):
    """Learn a tag for each word."""

    task_class = Tag
    one_to_one = True
    labelled = True
    confusion = True
    command = "tag"
    kind: Literal["tag"] = "tag"
