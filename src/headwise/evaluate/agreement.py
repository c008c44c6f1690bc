"""Metrics of GLUE besides accuracy: Matthews, Pearson and Spearman correlation, F1 of one label.

All are functions of sums over items, so their intervals come from the one bootstrap (evaluate/bootstrap.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval, check_paired
from headwise.evaluate.score import Score


def matthews(outputs: Sequence[str], references: Sequence[str], resamples: int = 1000, seed: int = 0) -> Score:
    """Matthews correlation coefficient of predicted and true labels, times 100 (Matthews 1975; for more than two labels
    Gorodkin 2004).

    >>> matthews(["a", "a", "b", "b"], ["a", "b", "b", "b"], resamples=0).value.__round__(4)
    57.735
    """
    check_paired(outputs, references)
    names = sorted({*outputs, *references})
    numbers = {name: number for number, name in enumerate(names)}
    rows = np.zeros((len(outputs), len(names), len(names)))  # true label, predicted label
    for row, output, reference in zip(rows, outputs, references, strict=True):
        row[numbers[reference], numbers[output]] = 1

    def correlation(sums: np.ndarray) -> np.ndarray:
        counts = sums.reshape(len(sums), len(names), len(names))  # (R, L * L) -> (R, L, L)
        true, predicted, total = counts.sum(2), counts.sum(1), counts.sum((1, 2))
        right = np.trace(counts, axis1=1, axis2=2)
        variances = (total**2 - (predicted**2).sum(1)) * (total**2 - (true**2).sum(1))
        return 100 * (right * total - (true * predicted).sum(1)) / np.sqrt(np.where(variances > 0, variances, np.inf))

    flat = rows.reshape(len(rows), -1)
    low, high = bootstrap_interval(flat, correlation, resamples, seed)
    return Score("Matthews", float(correlation(flat.sum(0, keepdims=True))[0]), low, high, f"{len(rows)} items")


def label_f1(
    label: str, outputs: Sequence[str], references: Sequence[str], resamples: int = 1000, seed: int = 0
) -> Score:
    """F1 = 2 PR / (P + R) of one label, in percent.

    >>> label_f1("1", ["1", "1", "0"], ["1", "0", "1"], resamples=0).value
    50.0
    """
    check_paired(outputs, references)
    rows = np.array(
        [
            (output == reference == label, output == label, reference == label)
            for output, reference in zip(outputs, references, strict=True)
        ],
        float,
    )

    def f1(sums: np.ndarray) -> np.ndarray:
        return 100 * 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1)

    low, high = bootstrap_interval(rows, f1, resamples, seed)
    value = float(f1(rows.sum(0, keepdims=True))[0])
    return Score(f"F1 of {label}", value, low, high, f"{len(rows)} items", unit="%")


def pearson(outputs: Sequence[float], references: Sequence[float], resamples: int = 1000, seed: int = 0) -> Score:
    """Pearson correlation, times 100.

    >>> pearson([1, 2, 3], [2, 4, 6]).value.__round__(6)
    100.0
    """
    return _correlation("Pearson", np.asarray(outputs, float), np.asarray(references, float), resamples, seed)


def spearman(outputs: Sequence[float], references: Sequence[float], resamples: int = 1000, seed: int = 0) -> Score:
    """Spearman rank correlation, times 100; ties have their mean rank. The bootstrap does not rank anew.

    >>> spearman([1, 2, 30], [1, 2, 3]).value.__round__(6)
    100.0
    """
    predicted, true = (rank_values(np.asarray(values, float)) for values in (outputs, references))
    return _correlation("Spearman", predicted, true, resamples, seed)


def rank_values(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; ties have their mean rank.

    >>> rank_values(np.array([3.0, 1.0, 3.0])).tolist()
    [1.5, 0.0, 1.5]
    """
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[groups]


def _correlation(name: str, predicted: np.ndarray, true: np.ndarray, resamples: int, seed: int) -> Score:
    check_paired(predicted, true)
    if np.ptp(true) == 0:
        raise UserError(f"{name}: all references are equal, so nothing can correlate with them; give others")
    a, b = predicted - predicted.mean(), true - true.mean()  # sums of squares of large numbers would lose digits
    rows = np.column_stack([np.ones_like(a), a, b, a**2, b**2, a * b])

    def correlation(sums: np.ndarray) -> np.ndarray:
        count, a, b, aa, bb, ab = sums.T
        variances = (count * aa - a**2) * (count * bb - b**2)
        return 100 * (count * ab - a * b) / np.sqrt(np.where(variances > 1e-24, variances, np.inf))

    low, high = bootstrap_interval(rows, correlation, resamples, seed)
    return Score(name, float(correlation(rows.sum(0, keepdims=True))[0]), low, high, f"{len(rows)} items")
