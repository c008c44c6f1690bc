"""Running text as rows of words with all that stands around them.

The pairs of a row lie in a band of one small matrix, words by places, so that their scores are one product of
matrices: each vector is fetched once for all its pairs.

Letters: B rows, L words of a row, N = L + 2 * window places where their contexts stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headwise.text import PAD, UNK

LENGTH = 32  # words of a row: long rows waste products, short ones fetch contexts twice


@dataclass(frozen=True)
class Text:
    """Known words one after the other, and the number of the text that each belongs to."""

    words: np.ndarray  # (n,)
    numbers: np.ndarray  # (n,)

    @classmethod
    def of(cls, texts: Iterable[ArrayLike]) -> Text:
        """Texts as token ids. Words that are not in the vocabulary are left out, as if they were not there."""
        pieces = [np.asarray(text, dtype=np.int64) for text in texts]
        words = np.concatenate([np.zeros(0, np.int64), *pieces])
        numbers = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
        return cls(words, numbers).only(words > UNK)

    def __len__(self) -> int:
        return len(self.words)

    def only(self, chosen: np.ndarray) -> Text:
        return Text(self.words[chosen], self.numbers[chosen])


@dataclass(frozen=True)
class Rows:
    """Some rows of words, the words around them, and which of both make a pair."""

    words: np.ndarray  # (B, L)
    near: np.ndarray  # (B, N)
    pairs: np.ndarray  # (B, L, N)  True where word and context belong together


def rows(text: Text, window: int, random: np.random.Generator, shrink: bool = True, batch: int = 16) -> Iterator[Rows]:
    """Every word of the text once, in random order of rows. With `shrink` each word draws how far it reaches, so
    that near words make more pairs than far ones; without, all reach over the whole window."""
    around = (window, window + LENGTH)
    ids = np.pad(text.words, around, constant_values=PAD)
    numbers = np.pad(text.numbers, around, constant_values=-1)
    places = np.arange(LENGTH + 2 * window)
    distance = np.abs(places - window - np.arange(LENGTH)[:, None])  # (L, N)
    starts = random.permutation(np.arange(0, len(text), LENGTH))
    inner = slice(window, window + LENGTH)
    for first in range(0, len(starts), batch):
        where = starts[first : first + batch, None] + places  # (B, 1) and (N,) -> (B, N)
        near, belongs = ids[where], numbers[where]
        own = belongs[:, inner, None]  # (B, L, 1)
        reach = random.integers(1, window + 1, own.shape) if shrink else window
        pairs = (distance > 0) & (distance <= reach) & (own >= 0) & (own == belongs[:, None])  # (B, L, N)
        yield Rows(near[:, inner], near, pairs)


def thinned(text: Text, shares: np.ndarray, threshold: float, random: np.random.Generator) -> Text:
    """Leave out each word with probability 1 - sqrt(threshold / its share) (equation 5); `shares` are by id.

    DISCREPANCY: the released word2vec keeps a little more, sqrt(t / f) + t / f; this is the paper's form.
    """
    if not threshold:
        return text
    keep = np.sqrt(threshold / np.maximum(shares, threshold))
    return text.only(random.random(len(text)) < keep[text.words])
