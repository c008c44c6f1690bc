"""From counts to probabilities. All smoothings here have one form (Chen and Goodman 1999, eq. 3):

    p(w | u) = gain(u w) + backoff(u) p(w | u')     u' = u without its first token

down to the uniform distribution over all tokens but PAD and BOS, which are never predicted. If u w was not seen, the
gain is 0; if nothing was seen after u, the back-off weight is 1. So the probabilities of the seen n-grams and the
back-off weights of their contexts are a complete back-off model.

A context is whole if it cannot be extended: it has order - 1 tokens or begins with BOS.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headwise.ngram.count import Grams, Ints, Trie
from headwise.text import BOS, EOS

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class GramCounts:
    """The n-grams of one order as input of a smoothing."""

    counts: Ints
    parents: Ints  # the number of each gram's context
    contexts: int  # how many there are one order down
    whole: NDArray[np.bool_]  # whether that context is whole
    outcomes: int  # how many tokens can follow

    def sums(self, values: NDArray) -> Floats:
        """Sum values over the n-grams of each context."""
        return np.bincount(self.parents, values, self.contexts).astype(np.float64, copy=False)


class Smoothing(Protocol):
    continuations: ClassVar[bool]
    """Whether contexts that are not whole use continuation counts: distinct preceding tokens, not occurrences."""

    def __call__(self, grams: GramCounts) -> tuple[Floats, Floats]:
        """The gain of each n-gram and the back-off weight of each context."""
        ...


@dataclass(frozen=True)
class AddK:
    """Add-k smoothing: (c(u w) + k) / (c(u) + k V) in whole contexts (Laplace for k = 1); others change nothing.

    k = 0 is maximum likelihood, c(u w) / c(u), and uniform in contexts that were never seen, as in the limit.
    """

    k: float
    continuations: ClassVar[bool] = False

    def __call__(self, grams: GramCounts) -> tuple[Floats, Floats]:
        counts = np.where(grams.whole, grams.counts, 0)
        total = grams.sums(counts)
        added = np.where(total > 0, self.k * grams.outcomes, 1.0)
        return counts / (total + added)[grams.parents], added / (total + added)


@dataclass(frozen=True)
class JelinekMercer:
    """Jelinek-Mercer smoothing: weight c(u w) / c(u) + (1 - weight) p(w | u'), with one weight for all orders."""

    weight: float
    continuations: ClassVar[bool] = False

    def __call__(self, grams: GramCounts) -> tuple[Floats, Floats]:
        total = grams.sums(grams.counts)
        return self.weight * grams.counts / np.maximum(total, 1)[grams.parents], np.where(
            total > 0, 1 - self.weight, 1.0
        )


@dataclass(frozen=True)
class KneserNey:
    """Interpolated Kneser-Ney smoothing (Chen and Goodman 1999): (c(u w) - D) / c(u) + D N1+(u .) / c(u) p(w | u').

    Whole contexts have plain counts, shorter ones continuation counts N1+(. u w). D = n1 / (n1 + 2 n2) for each order;
    or, modified, one D for counts of 1, 2 and more.

    DISCREPANCY: the equations usually end with N1+(. w) / N1+(. .) undiscounted, which leaves nothing for tokens that
    were never seen. As SRILM and KenLM do, 1-grams are discounted like all others, in favour of the uniform.
    """

    modified: bool = False
    continuations: ClassVar[bool] = True

    def __call__(self, grams: GramCounts) -> tuple[Floats, Floats]:
        discounts = self.discounts(grams.counts)[np.minimum(grams.counts, 3)]
        total = grams.sums(grams.counts)
        total_or_one = np.maximum(total, 1)
        rest = np.where(total > 0, grams.sums(discounts) / total_or_one, 1.0)
        return (grams.counts - discounts) / total_or_one[grams.parents], rest

    def discounts(self, counts: Ints) -> Floats:
        """The discounts of counts 0, 1, 2, and 3 or more; KenLM's defaults if they cannot be estimated."""
        n1, n2, n3, n4 = (float((counts == c).sum()) for c in (1, 2, 3, 4))
        d = n1 / (n1 + 2 * n2) if n1 else 0.5
        if not self.modified:
            return np.array([0, d, d, d])
        if n1 and n2 and n3:
            estimated = np.array([0, 1 - 2 * d * n2 / n1, 2 - 3 * d * n3 / n2, 3 - 4 * d * n4 / n3])
            if (estimated[1:] > 0).all():
                return estimated
        return np.array([0, 0.5, 1, 1.5])


@dataclass(frozen=True)
class BackoffWeights:
    """The probabilities and back-off weights of one order."""

    keys: Ints
    p: Floats  # of each gram's last token after the others
    backoff: Floats  # weight of each context, one order down


def compute_weights(trie: Trie, vocab: int, smoothing: Smoothing) -> list[BackoffWeights]:
    """Compute a back-off model from counts with a smoothing."""
    outcomes = vocab - EOS
    shorter = find_suffixes(trie, vocab)
    marked = np.arange(vocab) == BOS  # whether each gram begins with BOS
    whole = np.zeros(vocab, bool)
    below = np.full(1, 1 / outcomes)
    weights: list[BackoffWeights] = []
    for order, grams in enumerate(trie, start=1):
        parents = grams.keys // vocab
        if order > 1:
            marked = whole = marked[parents]
        top = order == len(trie)
        counts = grams.counts
        if smoothing.continuations and not top:
            counts = np.where(marked, counts, np.bincount(shorter[order], minlength=len(counts)))
        counted = GramCounts(counts, parents, len(weights[-1].p) if weights else 1, whole | top, outcomes)
        gain, backoff = smoothing(counted)
        p = gain + backoff[parents] * below[shorter[order - 1]]
        if order == 1:
            p[:EOS] = 0
        weights.append(BackoffWeights(grams.keys, p, backoff))
        below = p
    return weights


def find_suffixes(trie: Trie, vocab: int) -> list[Ints]:
    """For each order, the index one order down of every n-gram without its first token."""
    suffixes = [np.zeros(len(trie[0].keys), np.int64)]
    for shorter, grams in pairwise(trie):
        suffixes.append(np.searchsorted(shorter.keys, extend_keys(suffixes[-1], grams, vocab)))
    return suffixes


def extend_keys(numbers: Ints, grams: Grams, vocab: int) -> Ints:
    """The keys of n-grams after their contexts got new indices."""
    return numbers[grams.keys // vocab] * vocab + grams.keys % vocab
