"""The length penalty of beam search: log P is divided by it, so that short outputs are not preferred."""

from __future__ import annotations

from collections.abc import Callable

LengthPenalty = Callable[[float, float], float]  # (length, alpha) -> the divisor of log P


def gnmt_length_penalty(length: float, alpha: float) -> float:
    """The length penalty ((5 + |Y|) / 6)^alpha of Wu et al. (2016), eq. 14.

    >>> gnmt_length_penalty(1, 0.6), gnmt_length_penalty(7, 1.0)
    (1.0, 2.0)
    """
    return float(((5 + length) / 6) ** alpha)


def power_length_penalty(length: float, alpha: float) -> float:
    """The length penalty |Y|^alpha of `generate`; with alpha = 1 the score is the mean log P of a token.

    >>> power_length_penalty(9, 0.5)
    3.0
    """
    return float(length**alpha)
