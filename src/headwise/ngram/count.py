"""Counting n-grams in one pass over any amount of text, in memory bounded by the distinct ones.

A gram is named by a number: its place among the sorted grams of its order. So a gram of any order is one 64-bit key,
number of its first tokens * vocab + last token, and the grams of all orders form a trie of sorted arrays.
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
DENSE = 32  # up to so many possible keys a token, a table of all of them is faster than sorting


@dataclass(frozen=True)
class Grams:
    """The grams of one order, sorted by their keys, and how often each occurs."""

    keys: Ints
    counts: Ints


Trie: TypeAlias = list[Grams]  # by order, from 1; its 1-grams are the whole vocabulary


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a text. Its first `known` tokens are context only, as they were counted before."""

    tokens: Ints
    known: int
    opens: bool  # begins the text: BOS goes before it
    closes: bool  # ends the text: EOS follows


def empty(order: int, vocab: int) -> Trie:
    """Nothing counted yet."""
    nothing = np.zeros(0, np.int64)
    return [Grams(np.arange(vocab), np.zeros(vocab, np.int64)), *[Grams(nothing, nothing)] * (order - 1)]


def count(sequences: Iterable[ArrayLike], order: int, vocab: int, chunk: int = CHUNK) -> Trie:
    """How often each gram of up to `order` tokens occurs in the sequences, which have no marks of their own.

    Each is read as BOS ... EOS. One BOS says all that padding with order - 1 of them would: nothing goes before it.
    """
    found = batches(pieces(sequences, order, chunk), chunk)
    tries = (counted(batch, order, vocab) for batch in found)
    trie = next(tries, empty(order, vocab))
    for other in tries:
        trie = merged(trie, other, vocab)
    if not trie[0].counts[EOS + 1 :].any():
        raise UserError("the corpus is empty: an n-gram model needs at least one token to count")
    return trie


def pieces(sequences: Iterable[ArrayLike], order: int, chunk: int) -> Iterator[Piece]:
    """The sequences; one that is longer than a chunk is cut, and its pieces overlap."""
    for sequence in sequences:
        tokens = np.asarray(sequence, np.int64)
        for first in range(0, max(len(tokens), 1), chunk):
            known = min(first, order - 1)
            end = first + chunk
            yield Piece(tokens[first - known : end], known, first == known, end >= len(tokens))


def batches(found: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    """Pieces of about `size` tokens together."""
    batch: list[Piece] = []
    held = 0
    for piece in found:
        batch.append(piece)
        held += len(piece.tokens) + 1  # blank lines are held too
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def counted(batch: list[Piece], order: int, vocab: int) -> Trie:
    """The trie of some pieces."""
    stream, lengths = marked(batch, vocab)
    ends = np.cumsum(lengths)
    place = np.arange(len(stream)) - np.repeat(ends - lengths, lengths)  # in its own piece
    fresh = place >= np.repeat([piece.known + piece.opens for piece in batch], lengths)
    trie = [Grams(np.arange(vocab), np.bincount(stream[fresh], minlength=vocab))]
    numbers = stream  # of the gram of the current order that ends at each token
    for length in range(2, order + 1):
        ends = np.flatnonzero(place >= length - 1)
        own = numbers[ends - 1] * vocab + stream[ends]
        keys, found = numbered(own, len(trie[-1].keys) * vocab)
        trie.append(Grams(keys, np.bincount(found[fresh[ends]], minlength=len(keys))))
        numbers = np.empty_like(stream)
        numbers[ends] = found
    return trie


def marked(batch: list[Piece], vocab: int) -> tuple[Ints, Ints]:
    """All pieces in one array, with their marks, and the length of each."""
    given = np.concatenate([piece.tokens for piece in batch])
    if given.size and not (given.min() > EOS and given.max() < vocab):
        raise ValueError(f"a sequence has ids outside {EOS + 1} ... {vocab - 1}; give it without marks")
    inner, opens, closes = np.array([(len(piece.tokens), piece.opens, piece.closes) for piece in batch]).T
    lengths = inner + opens + closes
    ends = np.cumsum(lengths)
    stream = np.zeros(ends[-1], np.int64)
    stream[(ends - lengths)[opens > 0]] = BOS
    stream[ends[closes > 0] - 1] = EOS
    stream[stream == 0] = given
    return stream, lengths


def numbered(keys: Ints, limit: int) -> tuple[Ints, NDArray[np.integer]]:
    """The distinct keys in order, and the place of each key among them.

    >>> numbered(np.array([7, 2, 7]), limit=10)
    (array([2, 7]), array([1, 0, 1], dtype=int32))
    """
    if limit > DENSE * len(keys):
        return np.unique(keys, return_inverse=True)
    seen = np.zeros(limit, bool)
    seen[keys] = True
    distinct = np.flatnonzero(seen)
    places = np.empty(limit, np.int32)
    places[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, places[keys]


def merged(one: Trie, two: Trie, vocab: int) -> Trie:
    """Both counts together. A gram's number changes as others come before it, and with it the keys one order up."""
    trie: Trie = []
    renumbered = [np.zeros(1, np.int64)] * 2
    for grams in zip(one, two, strict=True):
        moved = [
            new[each.keys // vocab] * vocab + each.keys % vocab for new, each in zip(renumbered, grams, strict=True)
        ]
        keys = np.union1d(*moved)
        counts = np.zeros(len(keys), np.int64)
        renumbered = [np.searchsorted(keys, own) for own in moved]
        for places, each in zip(renumbered, grams, strict=True):
            counts[places] += each.counts
        trie.append(Grams(keys, counts))
    return trie
