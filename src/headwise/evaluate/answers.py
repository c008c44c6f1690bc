"""Scores of short answers: exact match and overlap of words, as for SQuAD (Rajpurkar et al. 2016).

Case, punctuation and the articles a, an and the do not count; of several references the nearest does.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from headwise.evaluate.bootstrap import bootstrap_interval, check_listed
from headwise.evaluate.score import Score

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


def normal(text: str) -> str:
    """
    >>> normal("The  Eiffel-Tower!")
    'eiffeltower'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_MARKS)).split())


def exact_match(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000) -> Score:
    """Percentage of outputs equal to one of their references.

    >>> exact_match(["the tower", "Rome"], [["Tower."], ["Paris", "Lyon"]]).value
    50.0
    """
    return _mean("exact match", outputs, references, lambda ours, true: float(normal(ours) == normal(true)), resamples)


def overlap(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000) -> Score:
    """The mean of 2 PR / (P + R) of the words, in percent.

    >>> round(overlap(["big red dog"], [["a red dog", "cat"]], resamples=0).value, 2)
    80.0
    """
    return _mean("F1", outputs, references, _f1, resamples)


def _f1(ours: str, true: str) -> float:
    given, wanted = normal(ours).split(), normal(true).split()
    common = (Counter(given) & Counter(wanted)).total()
    if not given or not wanted:
        return float(given == wanted)
    return 2 * common / (len(given) + len(wanted))


def _mean(
    name: str,
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    score: Callable[[str, str], float],
    resamples: int,
) -> Score:
    check_listed(outputs, references)
    pairs = zip(outputs, references, strict=True)
    each = 100 * np.array([max(score(ours, true) for true in listed) for ours, listed in pairs])
    low, high = bootstrap_interval(each[:, None], lambda sums: sums[:, 0] / len(each), resamples)
    return Score(name, float(each.mean()), low, high, f"{len(each)} items", unit="%")
