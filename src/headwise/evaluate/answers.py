"""SQuAD metrics of short answers: exact match and word F1 (Rajpurkar et al. 2016).

Case, punctuation and the articles a, an and the are ignored; of several references the best counts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from headwise.evaluate.bootstrap import bootstrap_interval, check_reference_lists
from headwise.evaluate.score import Score

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """
    >>> normalise_answer("The  Eiffel-Tower!")
    'eiffeltower'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000) -> Score:
    """Exact match: the percentage of outputs equal to one of their references.

    >>> exact_match(["the tower", "Rome"], [["Tower."], ["Paris", "Lyon"]]).value
    50.0
    """
    return _mean_score("exact match", outputs, references, _exact, resamples)


def word_f1(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000) -> Score:
    """The mean F1 = 2 PR / (P + R) of the words, in percent.

    >>> round(word_f1(["big red dog"], [["a red dog", "cat"]], resamples=0).value, 2)
    80.0
    """
    return _mean_score("F1", outputs, references, _f1, resamples)


def _exact(output: str, reference: str) -> float:
    return float(normalise_answer(output) == normalise_answer(reference))


def _f1(output: str, reference: str) -> float:
    predicted, true = normalise_answer(output).split(), normalise_answer(reference).split()
    common = (Counter(predicted) & Counter(true)).total()
    if not predicted or not true:
        return float(predicted == true)
    return 2 * common / (len(predicted) + len(true))


def _mean_score(
    name: str,
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    score: Callable[[str, str], float],
    resamples: int,
) -> Score:
    check_reference_lists(outputs, references)
    pairs = zip(outputs, references, strict=True)
    scores = 100 * np.array([max(score(output, text) for text in texts) for output, texts in pairs])
    low, high = bootstrap_interval(scores[:, None], lambda sums: sums[:, 0] / len(scores), resamples)
    return Score(name, float(scores.mean()), low, high, f"{len(scores)} items", unit="%")
