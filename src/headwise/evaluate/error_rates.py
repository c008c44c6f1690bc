"""Sequence, word, phoneme and character error rates, with several references for each item.

SER, the sequence error rate, is the share of items whose output equals none of their references; papers on
pronunciation call it WER, as each of their items is a word. WER, PER and CER are token error rates: the total edit
distance to the nearest reference over the total length of those nearest references, in words, phonemes or characters.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from headwise.evaluate.bootstrap import bootstrap_interval, check_reference_lists
from headwise.evaluate.score import Score


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Levenshtein distance: the fewest insertions, deletions and substitutions.

    Myers' bit-parallel algorithm (1999) as simplified by Hyyrö (2003): a whole column of the table is kept as
    two integers, bit i saying whether the value rises (or falls) from row i to row i + 1.

    >>> edit_distance("kitten", "sitting")
    3
    """
    if not first:
        return len(second)
    places: dict[Hashable, int] = {}
    for row, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << row
    every, last = (1 << len(first)) - 1, 1 << (len(first) - 1)
    rises, falls, distance = every, 0, len(first)
    for token in second:
        equal = places.get(token, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        grows = falls | (every & ~(diagonal | rises))
        shrinks = rises & diagonal
        distance += bool(grows & last) - bool(shrinks & last)
        grows, shrinks = grows << 1 | 1, shrinks << 1
        rises = every & (shrinks | ~(diagonal | grows))
        falls = every & grows & diagonal
    return distance


def sequence_error_rate(
    outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, seed: int = 0
) -> Score:
    """The share of outputs that equal none of their references, up to white space.

    >>> print(sequence_error_rate(["a b", "c"], [["a b", "a d"], ["e"]], resamples=10))
    SER 50.0 % [0.0, 100.0] (2 items)
    """
    check_reference_lists(outputs, references)
    wrong = [
        output.split() not in [text.split() for text in texts]
        for output, texts in zip(outputs, references, strict=True)
    ]
    statistics = np.column_stack([wrong, np.ones(len(wrong))])
    return _rate("SER", statistics, resamples, seed)


def word_error_rate(
    outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, seed: int = 0
) -> Score:
    """Word error rate: edit distance in words over reference length, as jiwer has it.

    >>> print(word_error_rate(["a b", "c"], [["a b", "a d"], ["e"]], resamples=10))
    WER 33.3 % [0.0, 100.0] (2 items)
    """
    return _token_error_rate("WER", outputs, references, resamples, seed)


def character_error_rate(
    outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, seed: int = 0
) -> Score:
    """Character error rate: edit distance in characters over reference length, spaces included.

    >>> print(character_error_rate(["kitten"], [["sitting"]], resamples=10))
    CER 42.9 % [42.9, 42.9] (1 items)
    """
    # tokens are separated by white space, so a space that is a character gets another symbol
    spaced_outputs = [" ".join(output.replace(" ", "\u2581")) for output in outputs]
    spaced_references = [[" ".join(text.replace(" ", "\u2581")) for text in texts] for texts in references]
    return _token_error_rate("CER", spaced_outputs, spaced_references, resamples, seed)


def phoneme_error_rate(
    outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, seed: int = 0
) -> Score:
    """Phoneme error rate: edit distance in phonemes, separated by white space, over reference length."""
    return _token_error_rate("PER", outputs, references, resamples, seed)


def _token_error_rate(
    name: str, outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int, seed: int
) -> Score:
    """Edit distance over reference length, both summed, each item against its nearest reference.

    Tokens are separated by white space; of equally near references the one listed first is taken.
    """
    check_reference_lists(outputs, references)
    statistics = np.array(
        [_nearest_reference(output, texts) for output, texts in zip(outputs, references, strict=True)], dtype=float
    )
    return _rate(name, statistics, resamples, seed)


def _nearest_reference(output: str, references: Sequence[str]) -> tuple[int, int]:
    """(distance, length) of the nearest reference."""
    tokens = output.split()
    candidates = [reference.split() for reference in references]
    return min(
        ((edit_distance(tokens, candidate), len(candidate)) for candidate in candidates),
        key=lambda pair: pair[0],
    )


def _rate(name: str, statistics: np.ndarray, resamples: int, seed: int) -> Score:
    """100 * errors / length from rows of (errors, length)."""

    def rate(sums: np.ndarray) -> np.ndarray:
        return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)

    low, high = bootstrap_interval(statistics, rate, resamples, seed)
    value = float(rate(statistics.sum(axis=0, keepdims=True))[0])
    return Score(name, value, low, high, f"{len(statistics)} items", unit="%")
