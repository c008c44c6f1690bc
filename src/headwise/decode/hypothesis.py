"""Hypotheses of a search, their scores and the length penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Token ids without BOS and EOS; `score` ranks hypotheses, `log_prob` is the log P of the sequence with EOS."""

    ids: tuple[int, ...]
    score: float
    log_prob: float


def length_penalty(length: float, alpha: float) -> float:
    """The length penalty ((5 + |Y|) / 6)^alpha of Wu et al. (2016), eq. 14; |Y| counts EOS.

    >>> length_penalty(1, 0.6), length_penalty(7, 1.0)
    (1.0, 2.0)
    """
    return float(((5 + length) / 6) ** alpha)


def score_hypothesis(ids: Sequence[int], log_prob: float, alpha: float) -> Hypothesis:
    """The hypothesis of `ids` (without EOS), given the log P of the sequence with EOS."""
    return Hypothesis(tuple(ids), log_prob / length_penalty(len(ids) + 1, alpha), log_prob)


def rank_hypotheses(hypotheses: Sequence[Hypothesis], count: int) -> list[Hypothesis]:
    """The `count` best, best first."""
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:count]
