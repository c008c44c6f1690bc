"""Counting n-grams in one pass over any amount of text, in memory bounded by the distinct ones.

An n-gram is identified by its index among the sorted n-grams of its order. So an n-gram of any order is one 64-bit
key, index of its first n - 1 tokens * vocab + last token, and all orders together form a trie of sorted arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.errors import UserError
from headwise.text import BOS, EOS

Ints: TypeAlias = NDArray[np.int64]

CHUNK = 1 << 20  # tokens counted at once
DENSE = 32  # up to this many possible keys per token a dense table is faster than sorting


@dataclass(frozen=True)
class Grams:
    """The n-grams of one order, sorted by key, with their counts."""

    keys: Ints
    counts: Ints


Trie: TypeAlias = list[Grams]  # by order, from 1; its 1-grams are the whole vocabulary


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text. Its first `context` tokens were counted before and serve as context only."""

    tokens: Ints
    context: int
    starts_text: bool  # BOS goes before it
    ends_text: bool  # EOS follows


def empty_trie(order: int, vocab: int) -> Trie:
    """A trie without counts."""
    nothing = np.zeros(0, np.int64)
    return [Grams(np.arange(vocab), np.zeros(vocab, np.int64)), *[Grams(nothing, nothing)] * (order - 1)]


def count_ngrams(sequences: Iterable[ArrayLike], order: int, vocab: int, chunk: int = CHUNK) -> Trie:
    """Count the n-grams of up to `order` tokens in the sequences, which have no special tokens.

    Each is read as BOS ... EOS. One BOS is equivalent to order - 1 of them, since no token precedes it.
    """
    batches = batch_pieces(split_pieces(sequences, order, chunk), chunk)
    tries = (count_pieces(batch, order, vocab) for batch in batches)
    trie = next(tries, empty_trie(order, vocab))
    for other in tries:
        trie = merge_tries(trie, other, vocab)
    if not trie[0].counts[EOS + 1 :].any():
        raise UserError("the corpus is empty: an n-gram model needs at least one token to count")
    return trie


def split_pieces(sequences: Iterable[ArrayLike], order: int, chunk: int) -> Iterator[Piece]:
    """The sequences as pieces; one that is longer than a chunk is split into overlapping pieces."""
    for sequence in sequences:
        tokens = np.asarray(sequence, np.int64)
        for first in range(0, max(len(tokens), 1), chunk):
            known = min(first, order - 1)
            end = first + chunk
            yield Piece(tokens[first - known : end], known, first == known, end >= len(tokens))


def batch_pieces(pieces: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    """Group pieces into batches of about `size` tokens."""
    batch: list[Piece] = []
    held_tokens = 0
    for piece in pieces:
        batch.append(piece)
        held_tokens += len(piece.tokens) + 1  # count empty lines, too
        if held_tokens >= size:
            yield batch
            batch, held_tokens = [], 0
    if batch:
        yield batch


def count_pieces(batch: list[Piece], order: int, vocab: int) -> Trie:
    """Count the n-grams of a batch of pieces."""
    stream, lengths = join_pieces(batch, vocab)
    ends = np.cumsum(lengths)
    position = np.arange(len(stream)) - np.repeat(ends - lengths, lengths)  # in its own piece
    is_new = position >= np.repeat([piece.context + piece.starts_text for piece in batch], lengths)
    trie = [Grams(np.arange(vocab), np.bincount(stream[is_new], minlength=vocab))]
    numbers = stream  # of the gram of the current order that ends at each token
    for length in range(2, order + 1):
        ends = np.flatnonzero(position >= length - 1)
        gram_keys = numbers[ends - 1] * vocab + stream[ends]
        keys, ranks = rank_keys(gram_keys, len(trie[-1].keys) * vocab)
        trie.append(Grams(keys, np.bincount(ranks[is_new[ends]], minlength=len(keys))))
        numbers = np.empty_like(stream)
        numbers[ends] = ranks
    return trie


def join_pieces(batch: list[Piece], vocab: int) -> tuple[Ints, Ints]:
    """All pieces in one array with BOS and EOS, and the length of each."""
    tokens = np.concatenate([piece.tokens for piece in batch])
    if tokens.size and not (tokens.min() > EOS and tokens.max() < vocab):
        raise ValueError(f"a sequence has ids outside {EOS + 1} ... {vocab - 1}; give it without special tokens")
    inner, opens, closes = np.array([(len(piece.tokens), piece.starts_text, piece.ends_text) for piece in batch]).T
    lengths = inner + opens + closes
    ends = np.cumsum(lengths)
    stream = np.zeros(ends[-1], np.int64)
    stream[(ends - lengths)[opens > 0]] = BOS
    stream[ends[closes > 0] - 1] = EOS
    stream[stream == 0] = tokens
    return stream, lengths


def rank_keys(keys: Ints, limit: int) -> tuple[Ints, NDArray[np.integer]]:
    """The sorted distinct keys, and the index of each key among them.

    >>> rank_keys(np.array([7, 2, 7]), limit=10)
    (array([2, 7]), array([1, 0, 1], dtype=int32))
    """
    if limit > DENSE * len(keys):
        return np.unique(keys, return_inverse=True)
    present = np.zeros(limit, bool)
    present[keys] = True
    distinct = np.flatnonzero(present)
    ranks = np.empty(limit, np.int32)
    ranks[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, ranks[keys]


def merge_tries(one: Trie, two: Trie, vocab: int) -> Trie:
    """Merge two tries. The indices of n-grams change, and with them the keys one order up."""
    trie: Trie = []
    renumbered = [np.zeros(1, np.int64)] * 2
    for grams in zip(one, two, strict=True):
        new_keys = [
            indices[each.keys // vocab] * vocab + each.keys % vocab
            for indices, each in zip(renumbered, grams, strict=True)
        ]
        keys = np.union1d(*new_keys)
        counts = np.zeros(len(keys), np.int64)
        renumbered = [np.searchsorted(keys, keys_of_trie) for keys_of_trie in new_keys]
        for indices, each in zip(renumbered, grams, strict=True):
            counts[indices] += each.counts
        trie.append(Grams(keys, counts))
    return trie
