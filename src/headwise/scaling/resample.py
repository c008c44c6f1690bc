"""Bootstrap intervals over the seeds of each rung (Efron 1979)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from headwise.compare.estimate import LEVEL, student_t
from headwise.scaling.fit import Floats

RESAMPLES = 1000


def resample_means(groups: Sequence[Floats], count: int = RESAMPLES, seed: int = 0) -> list[Floats]:
    """For each group of S seeds `count` means of seeds drawn with replacement: (S, ...) -> (count, ...).

    Two corrections for few seeds: the bootstrap variance is too small by (S - 1) / S, and the spread is estimated with
    few degrees of freedom, as in Student's t. If no group has two seeds, the result is empty: (0, ...).
    """
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return [group[:0] for group in groups]
    random = np.random.default_rng(seed)
    widening = student_t(freedom) / NormalDist().inv_cdf((1 + LEVEL) / 2)
    return [_means(group, count, widening, random) for group in groups]


def _means(group: Floats, count: int, widening: float, random: np.random.Generator) -> Floats:
    seeds = len(group)
    indices = random.integers(seeds, size=(count, seeds))
    shares = (indices[:, :, None] == np.arange(seeds)).mean(1)  # (count, S)
    stretch = widening * (seeds / max(seeds - 1, 1)) ** 0.5
    return np.tensordot(1 / seeds + stretch * (shares - 1 / seeds), group, axes=1)


def interval(draws: Floats) -> tuple[Floats, Floats]:
    """The 95 % percentile interval of draws, (R, ...) -> two of (...); NaN if there are none."""
    if not len(draws):
        nothing = np.full(draws.shape[1:], np.nan)
        return nothing, nothing
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(draws, [tail, 100 - tail], axis=0)
    return low, high
