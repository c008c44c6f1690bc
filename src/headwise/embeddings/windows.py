"""Text as rows of words with their context windows.

The pairs of a row are a band of one small matrix, words by context positions, so that their scores are one matrix
product and each vector is gathered once for all its pairs.

Letters: B rows, L words of a row, N = L + 2 * window context positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headwise.text import PAD, UNK

LENGTH = 32  # words of a row: long rows waste products, short ones gather contexts more often


@dataclass(frozen=True)
class Text:
    """All known words in one array, and the index of each word's text."""

    words: np.ndarray  # (n,)
    text_ids: np.ndarray  # (n,)

    @classmethod
    def from_ids(cls, texts: Iterable[ArrayLike]) -> Text:
        """Concatenate texts of token ids. Words that are not in the vocabulary are dropped."""
        pieces = [np.asarray(text, dtype=np.int64) for text in texts]
        words = np.concatenate([np.zeros(0, np.int64), *pieces])
        numbers = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
        return cls(words, numbers).select(words > UNK)

    def __len__(self) -> int:
        return len(self.words)

    def select(self, mask: np.ndarray) -> Text:
        return Text(self.words[mask], self.text_ids[mask])


@dataclass(frozen=True)
class Rows:
    """A batch of rows of words, their context windows, and the pairs of word and context."""

    words: np.ndarray  # (B, L)
    contexts: np.ndarray  # (B, N)
    pairs: np.ndarray  # (B, L, N)  True where word and context belong together


def make_rows(
    text: Text, window: int, random: np.random.Generator, shrink: bool = True, batch: int = 16
) -> Iterator[Rows]:
    """Batches of rows in random order; every word occurs once. With `shrink` each word draws its window size, so that
    near words make more pairs than far ones; without, all use the full window."""
    padding = (window, window + LENGTH)
    ids = np.pad(text.words, padding, constant_values=PAD)
    numbers = np.pad(text.text_ids, padding, constant_values=-1)
    positions = np.arange(LENGTH + 2 * window)
    distance = np.abs(positions - window - np.arange(LENGTH)[:, None])  # (L, N)
    starts = random.permutation(np.arange(0, len(text), LENGTH))
    inner = slice(window, window + LENGTH)
    for first in range(0, len(starts), batch):
        indices = starts[first : first + batch, None] + positions  # (B, 1) and (N,) -> (B, N)
        contexts, texts = ids[indices], numbers[indices]
        word_texts = texts[:, inner, None]  # (B, L, 1)
        reach = random.integers(1, window + 1, word_texts.shape) if shrink else window
        pairs = (distance > 0) & (distance <= reach) & (word_texts >= 0) & (word_texts == texts[:, None])  # (B, L, N)
        yield Rows(contexts[:, inner], contexts, pairs)


def subsample(text: Text, frequencies: np.ndarray, threshold: float, random: np.random.Generator) -> Text:
    """Subsample frequent words: drop each with probability 1 - sqrt(threshold / frequency) (equation 5).

    DISCREPANCY: the released word2vec keeps a little more, sqrt(t / f) + t / f; this is the paper's form.
    """
    if not threshold:
        return text
    keep = np.sqrt(threshold / np.maximum(frequencies, threshold))
    return text.select(random.random(len(text)) < keep[text.words])
