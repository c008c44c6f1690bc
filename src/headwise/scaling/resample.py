"""Intervals over seeds: the seeds of each rung are drawn again (Efron 1979)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from headwise.compare.estimate import LEVEL, student
from headwise.scaling.fit import Floats

RESAMPLES = 1000


def resampled(groups: Sequence[Floats], count: int = RESAMPLES, seed: int = 0) -> list[Floats]:
    """For each group of S seeds `count` means of seeds drawn with replacement: (S, ...) -> (count, ...).

    There are few seeds. A mean of S drawn ones strays sqrt((S - 1) / S) too little, and the spread itself is known
    from few degrees of freedom; both are made good, the second as in Student's t. Where no group has two seeds nothing
    is known of other seeds, and there are no means: (0, ...).
    """
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return [group[:0] for group in groups]
    random = np.random.default_rng(seed)
    wide = student(freedom) / NormalDist().inv_cdf((1 + LEVEL) / 2)
    return [_means(group, count, wide, random) for group in groups]


def _means(group: Floats, count: int, wide: float, random: np.random.Generator) -> Floats:
    seeds = len(group)
    drawn = random.integers(seeds, size=(count, seeds))
    shares = (drawn[:, :, None] == np.arange(seeds)).mean(1)  # (count, S)
    stretch = wide * (seeds / max(seeds - 1, 1)) ** 0.5
    return np.tensordot(1 / seeds + stretch * (shares - 1 / seeds), group, axes=1)


def interval(draws: Floats) -> tuple[Floats, Floats]:
    """The 95 % between the draws' percentiles, (R, ...) -> two of (...); NaN where there are none."""
    if not len(draws):
        nothing = np.full(draws.shape[1:], np.nan)
        return nothing, nothing
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(draws, [tail, 100 - tail], axis=0)
    return low, high
