"""Costs over length: power-law exponent, crossover of two curves, and extrapolation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def fit_exponent(lengths: Sequence[int], costs: Sequence[float]) -> float | None:
    """The slope of log cost over log length by least squares, over the longer half of the lengths, where constant
    overhead no longer matters; None for fewer than two of them.

    >>> round(fit_exponent([1, 2, 4, 8], [9.0, 9.0, 3.0, 12.0]), 6)
    2.0
    """
    half = min(len(lengths) // 2, max(len(lengths) - 2, 0))  # two points at least
    x, y = np.log(lengths[half:]), np.log(costs[half:])
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else None


def crossover(lengths: Sequence[int], own: Sequence[float], other: Sequence[float]) -> float | None:
    """The length from which on `own` is below `other`, between two measured ones by interpolation on logarithmic
    scales; the first length if it always is, None if it is not at the last.

    >>> crossover([1, 2, 4], [3.0, 6.0, 12.0], [1.0, 4.0, 16.0])  # 3 n against n^2
    3.0
    """
    log_ratios = [math.log(a / b) for a, b in zip(own, other, strict=True)]
    last = max((i for i, ratio in enumerate(log_ratios) if ratio >= 0), default=-1)
    if last == len(log_ratios) - 1:
        return None
    if last < 0:
        return float(lengths[0])
    share = log_ratios[last] / (log_ratios[last] - log_ratios[last + 1])
    return round(lengths[last] * (lengths[last + 1] / lengths[last]) ** share, 6)


def extrapolate(lengths: Sequence[int], costs: Sequence[float], length: int) -> float:
    """Extrapolate the cost to another length from the last two costs, or quadratically from one; 0 from none."""
    if not costs:
        return 0.0
    slope = 2.0
    if len(costs) > 1 and min(costs[-2:]) > 0:
        slope = math.log(costs[-1] / costs[-2]) / math.log(lengths[-1] / lengths[-2])
    return costs[-1] * (length / lengths[-1]) ** slope
