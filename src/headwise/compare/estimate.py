"""Means over seeds with 95 % intervals, of arms and of differences between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan, cos, hypot, inf, pi, sin, sqrt, tan
from statistics import fmean, stdev
from typing import Literal

from headwise.compare.values import Arm, Comparison
from headwise.errors import UserError, nearest

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval: Student's t over several seeds, or the bootstrap over test items for one seed."""

    mean: float
    low: float
    high: float
    count: int  # seeds
    over: Literal["seeds", "items"]

    @property
    def margin(self) -> float:
        return (self.high - self.low) / 2


def estimate_score(comparison: Comparison, arm: str, score: str) -> Estimate | None:
    """An arm's score; None if no run has it."""
    scores = [
        outcome.scores[score] for outcome in _get_arm(comparison, arm).outcomes.values() if score in outcome.scores
    ]
    if len(scores) == 1:
        return Estimate(scores[0].value, scores[0].low, scores[0].high, 1, "items")
    return estimate_over_seeds([each.value for each in scores])


def estimate_difference(comparison: Comparison, arm: str, other: str, score: str) -> Estimate | None:
    """The mean paired difference `arm` - `other` over seeds; None if they share no seed.

    With one seed the two intervals over items are added as if the arms were independent. Both see the same items, so
    the true interval is narrower.
    """
    one, two = (_get_arm(comparison, name).outcomes for name in (arm, other))
    pairs = [
        (one[seed].scores[score], two[seed].scores[score])
        for seed in one
        if seed in two and score in one[seed].scores and score in two[seed].scores
    ]
    if len(pairs) == 1:
        ((first, second),) = pairs
        mean = first.value - second.value
        below = hypot(first.value - first.low, second.high - second.value)
        above = hypot(first.high - first.value, second.value - second.low)
        return Estimate(mean, mean - below, mean + above, 1, "items")
    return estimate_over_seeds([first.value - second.value for first, second in pairs])


def estimate_over_seeds(values: Sequence[float]) -> Estimate | None:
    """mean ± t s / √n for two or more values."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    margin = student_t(len(values) - 1) * stdev(values) / sqrt(len(values))
    return Estimate(mean, mean - margin, mean + margin, len(values), "seeds")


def student_t(freedom: int, level: float = LEVEL) -> float:
    """The two-sided critical value of Student's t distribution.

    >>> [round(student_t(freedom), 3) for freedom in (1, 2, 3, 4, 30)]
    [12.706, 4.303, 3.182, 2.776, 2.042]
    """
    low, high = 0.0, atan(inf)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_mass(middle, freedom) < level else (low, middle)
    return sqrt(freedom) * tan(low)


def student_p_value(t: float, freedom: int) -> float:
    """P(|T| > t), the p-value of a two-sided t test.

    >>> [round(student_p_value(t, 4), 4) for t in (0.0, 2.776, 8.61)]
    [1.0, 0.05, 0.001]
    """
    return max(1 - _student_mass(atan(t / sqrt(freedom)), freedom), 0.0)


def _student_mass(angle: float, freedom: int) -> float:
    """P(|T| < t) for θ = atan(t / √ν), a finite sum over powers of cos θ: Abramowitz and Stegun (1964), 26.7.3-4."""
    odd = freedom % 2
    term, total = (cos(angle), 0.0) if odd else (1.0, 0.0)
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cos(angle) ** 2 * (power + 1) / (power + 2)
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def _get_arm(comparison: Comparison, name: str) -> Arm:
    if name not in comparison.arms:
        raise UserError(f"no arm is called '{name}'; {nearest(name, comparison.arms)}")
    return comparison.arms[name]
