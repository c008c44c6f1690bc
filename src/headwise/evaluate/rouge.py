"""ROUGE (Lin 2004) of summaries, as the package `rouge-score` computes it without its stemmer.

Texts are lower-cased and split into runs of a-z and 0-9. An item's score is F1 = 2PR / (P + R), the best over its
references; the score of a test set is the mean over its items, in percent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np

from headwise.evaluate.bootstrap import bootstrap_interval, check_reference_lists
from headwise.evaluate.score import Score

Words = Sequence[str]
_WORD = re.compile("[a-z0-9]+")


def rouge_l(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, seed: int = 0) -> Score:
    """ROUGE-L: F1 of the longest common subsequence: P = LCS / |output|, R = LCS / |reference|.

    >>> round(rouge_l(["the cat was here"], [["The cat sat."]], resamples=0).value, 4)
    57.1429
    """
    return _mean_score("ROUGE-L", subsequence_f1, outputs, references, resamples, seed)


def rouge_n(
    outputs: Sequence[str], references: Sequence[Sequence[str]], order: int = 1, resamples: int = 1000, seed: int = 0
) -> Score:
    """F1 of common n-grams, each counted as often as in the text that has fewer of it.

    >>> round(rouge_n(["the cat was here"], [["The cat sat."]], order=2, resamples=0).value, 4)
    40.0
    """
    return _mean_score(f"ROUGE-{order}", partial(ngram_f1, order=order), outputs, references, resamples, seed)


def subsequence_f1(output: Words, reference: Words) -> float:
    return f1(longest_common_subsequence(output, reference), len(output), len(reference))


def ngram_f1(output: Words, reference: Words, order: int) -> float:
    ours, true = (Counter(zip(*(words[n:] for n in range(order)), strict=False)) for words in (output, reference))
    return f1((ours & true).total(), ours.total(), true.total())


def f1(common: int, output: int, reference: int) -> float:
    """2PR / (P + R) of P = common / output and R = common / reference: 2 common / (output + reference)."""
    return 2 * common / (output + reference) if common else 0.0


def longest_common_subsequence(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """The length of the longest common subsequence.

    Bit-parallel (Hyyrö 2004): a column of the table is one integer, whose bit i is 0 where the length grows from
    row i to row i + 1.

    >>> longest_common_subsequence("ABCBDAB", "BDCABA")
    4
    """
    places: dict[Hashable, int] = {}
    for row, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << row
    every = (1 << len(first)) - 1
    column = every
    for token in second:
        equal = column & places.get(token, 0)
        column = ((column + equal) | (column - equal)) & every
    return len(first) - column.bit_count()


def _mean_score(
    name: str,
    score: Callable[[Words, Words], float],
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    resamples: int,
    seed: int,
) -> Score:
    check_reference_lists(outputs, references)
    scores = np.array(
        [
            max(score(split_words(output), split_words(text)) for text in texts)
            for output, texts in zip(outputs, references, strict=True)
        ]
    )
    low, high = bootstrap_interval(100 * scores[:, None] / len(scores), lambda sums: sums[:, 0], resamples, seed)
    return Score(name, float(100 * scores.mean()), low, high, f"{len(scores)} items", unit="%")


def split_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
