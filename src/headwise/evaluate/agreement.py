"""Scores of GLUE besides accuracy: Matthews' and Pearson's and Spearman's correlations, F1 of one label.

All are functions of sums over items, so their intervals come from the one bootstrap (evaluate/bootstrap.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval, check_paired
from headwise.evaluate.score import Score


def matthews(outputs: Sequence[str], references: Sequence[str], resamples: int = 1000, seed: int = 0) -> Score:
    """Correlation of given and true labels, 0 by chance and 100 when all are right (Matthews 1975; for more than two
    labels Gorodkin 2004).

    >>> matthews(["a", "a", "b", "b"], ["a", "b", "b", "b"], resamples=0).value.__round__(4)
    57.735
    """
    check_paired(outputs, references)
    names = sorted({*outputs, *references})
    number = {name: place for place, name in enumerate(names)}
    rows = np.zeros((len(outputs), len(names), len(names)))  # true label, given label
    for row, ours, true in zip(rows, outputs, references, strict=True):
        row[number[true], number[ours]] = 1

    def correlation(sums: np.ndarray) -> np.ndarray:
        counts = sums.reshape(len(sums), len(names), len(names))  # (R, L * L) -> (R, L, L)
        true, given, total = counts.sum(2), counts.sum(1), counts.sum((1, 2))
        right = np.trace(counts, axis1=1, axis2=2)
        spread = (total**2 - (given**2).sum(1)) * (total**2 - (true**2).sum(1))
        return 100 * (right * total - (true * given).sum(1)) / np.sqrt(np.where(spread > 0, spread, np.inf))

    flat = rows.reshape(len(rows), -1)
    low, high = bootstrap_interval(flat, correlation, resamples, seed)
    return Score("Matthews", float(correlation(flat.sum(0, keepdims=True))[0]), low, high, f"{len(rows)} items")


def f1_of(label: str, outputs: Sequence[str], references: Sequence[str], resamples: int = 1000, seed: int = 0) -> Score:
    """2 PR / (P + R) of one label, in percent.

    >>> f1_of("1", ["1", "1", "0"], ["1", "0", "1"], resamples=0).value
    50.0
    """
    check_paired(outputs, references)
    rows = np.array(
        [(ours == true == label, ours == label, true == label) for ours, true in zip(outputs, references, strict=True)],
        float,
    )

    def f1(sums: np.ndarray) -> np.ndarray:
        return 100 * 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1)

    low, high = bootstrap_interval(rows, f1, resamples, seed)
    value = float(f1(rows.sum(0, keepdims=True))[0])
    return Score(f"F1 of {label}", value, low, high, f"{len(rows)} items", unit="%")


def pearson(outputs: Sequence[float], references: Sequence[float], resamples: int = 1000, seed: int = 0) -> Score:
    """Linear correlation, times 100.

    >>> pearson([1, 2, 3], [2, 4, 6]).value.__round__(6)
    100.0
    """
    return _correlation("Pearson", np.asarray(outputs, float), np.asarray(references, float), resamples, seed)


def spearman(outputs: Sequence[float], references: Sequence[float], resamples: int = 1000, seed: int = 0) -> Score:
    """Correlation of ranks, times 100; equal values have their mean rank. In the interval the ranks stay as they are.

    >>> spearman([1, 2, 30], [1, 2, 3]).value.__round__(6)
    100.0
    """
    ours, true = (ranks(np.asarray(side, float)) for side in (outputs, references))
    return _correlation("Spearman", ours, true, resamples, seed)


def ranks(values: np.ndarray) -> np.ndarray:
    """Places in sorted order, from 0; ties share their mean.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [1.5, 0.0, 1.5]
    """
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[which]


def _correlation(name: str, ours: np.ndarray, true: np.ndarray, resamples: int, seed: int) -> Score:
    check_paired(ours, true)
    if np.ptp(true) == 0:
        raise UserError(f"{name}: all references are equal, so nothing can correlate with them; give others")
    ours, true = ours - ours.mean(), true - true.mean()  # sums of squares of large numbers would lose digits
    rows = np.column_stack([np.ones_like(ours), ours, true, ours**2, true**2, ours * true])

    def correlation(sums: np.ndarray) -> np.ndarray:
        count, a, b, aa, bb, ab = sums.T
        spread = (count * aa - a**2) * (count * bb - b**2)
        return 100 * (count * ab - a * b) / np.sqrt(np.where(spread > 1e-24, spread, np.inf))

    low, high = bootstrap_interval(rows, correlation, resamples, seed)
    return Score(name, float(correlation(rows.sum(0, keepdims=True))[0]), low, high, f"{len(rows)} items")
