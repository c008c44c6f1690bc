"""Token classification (tagging): one label for each word, such as its part of speech."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.data.collate import PairBatch
from headwise.data.config import DataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.data.word_pieces import encode_words, split_words, tokenise_tagged
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import batch_by_length as by_length
from headwise.errors import UserError
from headwise.evaluate.labels import accuracy_by_text, confusion_matrix, macro_f1
from headwise.evaluate.score import Score
from headwise.hmm.model import HiddenMarkov
from headwise.models.text_classifier import TokenClassifier
from headwise.proteins.secondary import reduce_states
from headwise.tasks.base import Evaluation, TaskConfig, TextTask
from headwise.text import EOS, PAD, UNK
from headwise.text.base import Tokeniser
from headwise.text.config import TokeniserConfig, WordsConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Words
from headwise.train.state import LossState, Metric

Tagger: TypeAlias = TokenClassifier | HiddenMarkov

log = logging.getLogger(__name__)


@runtime_checkable
class SequenceTagger(Protocol):
    """A tagger that searches for the best sequence of tags, such as a hidden Markov model; fitted in one pass."""

    def fit(self, examples: Iterable[tuple[np.ndarray, np.ndarray]], vocabulary: Sequence[str]) -> None: ...
    def tag(self, ids: Tensor, keep: Tensor, texts: Sequence[Sequence[str]]) -> Tensor: ...


class Tag(TextTask["TagConfig", Tagger]):
    """Token classification. Words and their tags are separated by spaces."""

    @classmethod
    def adapt_data(cls, data: DataConfig) -> DataConfig:
        return data.replace(one_to_one=TagConfig.one_to_one)

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            tokeniser = tokeniser.replace(shared=False, target=WordsConfig(size=0))
        return prepare(cls.adapt_data(data), tokeniser, tokenise_tagged)

    def fit_model(self, model: Tagger, examples: Examples) -> None:
        assert isinstance(model, SequenceTagger)
        if not isinstance(self.tokenisers.source, Words):
            raise UserError("tokeniser.kind: this model counts words and their tags; use tokeniser = 'words'")
        model.fit(examples, self.tokenisers.source.vocabulary)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("accuracy", lower=False)

    def loss(self, model: Tagger, batch: PairBatch, state: LossState) -> Loss:
        ids, labels = batch.source, batch.target_out.masked_fill(batch.target_out == EOS, PAD)
        if not self.tokenisers.source.appends_eos:
            ids, labels = ids.masked_fill(ids == EOS, PAD)[:, :-1], labels[:, :-1]
        return model(ids, labels=labels, label_smoothing=self.label_smoothing)

    def validate(self, model: Tagger, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        outputs = self.predict_tags(model, [text for text, _ in pairs])
        references = self.normalise_tags(pairs)
        return {"accuracy": accuracy_by_text(outputs, references, resamples=0).value}

    def evaluate(
        self, model: Tagger, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        sources = [text for text, _ in pairs]
        references = self.normalise_tags(pairs)
        outputs = self.predict_tags(model, sources)
        joined = [[" ".join(tags)] for tags in references]
        scores = self.score_outputs([" ".join(tags) for tags in outputs], joined)
        known = self.find_known_words(sources)
        if not all(map(all, known)):
            predicted, true = (select_unknown(tags, known) for tags in (outputs, references))
            scores.append(accuracy_by_text(predicted, true, name="accuracy on unknown words"))
        names, counts = confusion_matrix(outputs, references)
        return Evaluation(sources, [" ".join(tags) for tags in outputs], joined, scores, names, counts)

    def score_outputs(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        predicted, true = [tags.split() for tags in outputs], [tags.split() for (tags,) in references]
        if self.config.scheme == "dssp":
            three, true_three = ([[*map(reduce_states, tags)] for tags in side] for side in (predicted, true))
            return [
                accuracy_by_text(predicted, true, resamples, name="Q8"),
                accuracy_by_text(three, true_three, resamples, name="Q3"),
            ]
        return [accuracy_by_text(predicted, true, resamples), macro_f1(predicted, true, resamples)]

    def normalise_tags(self, pairs: Sequence[Pair]) -> list[list[str]]:
        """The tags of each pair, normalised as in training."""
        normalise = self.tokenisers.target.normalise
        return [normalise(tags).split() for _, tags in pairs]

    def find_known_words(self, texts: Sequence[str]) -> list[list[bool]]:
        """Whether each word is in the vocabulary; every word is where tokens are word pieces."""
        source = self.tokenisers.source
        if not isinstance(source, Words):
            return [[True] * len(split_words(source, text)) for text in texts]
        return [
            [number % source.size not in source.unknown_ids for number in ids] for ids in source.encode_batch(texts)
        ]

    def predict_tags(self, model: Tagger, texts: Sequence[str], tokens: int = 8192) -> list[list[str]]:
        """The tags of each text's words."""
        names, source = self.tokenisers.target.vocabulary, self.tokenisers.source
        tags: list[list[str]] = [[] for _ in texts]
        device = get_device(model)
        ids_by_word = encode_words(source, texts)
        end = [EOS] * (source.appends_eos and not isinstance(model, SequenceTagger))
        rows = [[*(number for word in by_word for number in word), *end] for by_word in ids_by_word]
        with inference_mode(model):
            for numbers, ids in batch_texts(rows, tokens):
                batch_words = [split_words(source, texts[number]) for number in numbers]
                tag_ids = predict_tag_ids(model, ids.to(device), batch_words).tolist()
                for number, row in zip(numbers, tag_ids, strict=True):
                    by_word = ids_by_word[number]
                    firsts = accumulate(map(len, by_word[:-1]), initial=0)  # a word's tag is that of its first piece
                    tags[number] = [names[row[first]] for first in firsts] if by_word else []
        return tags


def select_unknown(tags: Sequence[Sequence[str]], known: Sequence[Sequence[bool]]) -> list[list[str]]:
    """The tags of the words that are not known."""
    return [
        [tag for tag, seen in zip(row, flags, strict=True) if not seen] for row, flags in zip(tags, known, strict=True)
    ]


def predict_tag_ids(model: Tagger, ids: Tensor, words: Sequence[Sequence[str]]) -> Tensor:
    """The id of each token's tag, (B, T): the most probable one, or that of the best sequence."""
    if isinstance(model, SequenceTagger):
        return model.tag(ids, ids != PAD, words)
    logits = model(ids)
    logits[..., : UNK + 1] = -torch.inf  # special tokens are no tags
    return logits.argmax(-1)


def encode_texts(tokeniser: Tokeniser, texts: Sequence[str], limit: int = 0) -> list[list[int]]:
    """The ids of each text and EOS. A text of more than `limit` tokens (0: any number) loses its end, with a warning:
    for tasks that tell one thing about a text."""
    rows = [[*ids, EOS] for ids in tokeniser.encode_batch(texts)]
    if not limit or all(len(row) <= limit for row in rows):
        return rows
    warn_of_cut_texts(limit)
    return [row if len(row) <= limit else [*row[: limit - 1], EOS] for row in rows]


@cache
def warn_of_cut_texts(limit: int) -> None:
    """Log a warning, once: not at each validation."""
    log.warning("texts of more than %d tokens, the most that the model reads, are cut", limit)


def batch_texts(rows: Sequence[Sequence[int]], tokens: int) -> Iterator[tuple[list[int], Tensor]]:
    """Batches of texts of similar length: their numbers and padded ids, (B, T)."""
    for numbers in by_length([max(len(row), 1) for row in rows], tokens):
        ids = [torch.tensor(rows[number] or [PAD]) for number in numbers]
        yield numbers, pad_sequence(ids, batch_first=True, padding_value=PAD)


class TagConfig(TaskConfig):
    """Token classification: a tag for each word."""

    task_class = Tag
    divisible = True
    one_to_one = True
    labelled = True
    confusion = True
    command = "tag"
    fits = "tagged"
    baselines = ("most frequent tag",)
    kind: Literal["tag"] = "tag"
    scheme: Literal["words", "dssp"] = "words"  # dssp: words are residues, tags states; scores are Q8 and Q3
