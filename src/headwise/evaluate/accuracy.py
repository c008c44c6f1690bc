"""Accuracy: the share of outputs that equal their reference."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from headwise.evaluate.bootstrap import bootstrap_interval, check_paired
from headwise.evaluate.score import Score


def accuracy(
    outputs: Sequence[Hashable], references: Sequence[Hashable], resamples: int = 1000, seed: int = 0
) -> Score:
    """Percentage of outputs equal to their reference.

    >>> accuracy([1, 2, 3, 4], [1, 2, 3, 5]).value
    75.0
    """
    check_paired(outputs, references)
    right = np.array([a == b for a, b in zip(outputs, references, strict=True)], dtype=float)
    low, high = bootstrap_interval(right[:, None], lambda sums: 100 * sums[:, 0] / len(right), resamples, seed)
    return Score("accuracy", float(100 * right.mean()), low, high, f"{len(right)} items", unit="%")
