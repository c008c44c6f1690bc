"""Scores of labels: accuracy, macro F1, and which label was taken for which.

Outputs and references are lists of labels for each text: one for each word of it, or a single one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval, check_paired
from headwise.evaluate.score import Score

Labels = Sequence[Sequence[str]]


def accuracy_by_text(
    outputs: Labels, references: Labels, resamples: int = 1000, seed: int = 0, name: str = "accuracy"
) -> Score:
    """Percentage of right labels; the interval is over texts, whose labels depend on each other.

    >>> round(accuracy_by_text([["DET", "NOUN"], ["VERB"]], [["DET", "VERB"], ["VERB"]]).value, 4)
    66.6667
    """
    _check(outputs, references)
    rows = np.array([(sum(map(str.__eq__, a, b)), len(b)) for a, b in zip(outputs, references, strict=True)], float)

    def share(sums: np.ndarray) -> np.ndarray:
        return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)

    low, high = bootstrap_interval(rows, share, resamples, seed)
    total = rows.sum(axis=0, keepdims=True)
    return Score(name, float(share(total)[0]), low, high, f"{int(total[0, 1])} labels", unit="%")


def macro_f1(outputs: Labels, references: Labels, resamples: int = 1000, seed: int = 0) -> Score:
    """The mean over labels of 2 PR / (P + R), in percent: rare labels count as much as frequent ones.

    >>> round(macro_f1([["a", "b", "b"]], [["a", "b", "a"]], resamples=0).value, 4)
    66.6667
    """
    _check(outputs, references)
    names = sorted({label for row in references for label in row})
    number = {name: place for place, name in enumerate(names)}
    rows = np.zeros((len(references), 3, len(names)))  # right, given and true, by label
    for row, output, reference in zip(rows, outputs, references, strict=True):
        for ours, true in zip(output, reference, strict=True):
            row[2, number[true]] += 1
            if ours in number:
                row[1, number[ours]] += 1
                row[0, number[ours]] += ours == true

    def mean(sums: np.ndarray) -> np.ndarray:
        right, given, true = sums.reshape(len(sums), 3, -1).swapaxes(0, 1)  # (R, 3 * L) -> 3 x (R, L)
        f1 = 2 * right / np.maximum(given + true, 1)
        return 100 * (f1 * (true > 0)).sum(1) / np.maximum((true > 0).sum(1), 1)

    flat = rows.reshape(len(rows), -1)  # (N, 3, L) -> (N, 3 * L)
    low, high = bootstrap_interval(flat, mean, resamples, seed)
    value = float(mean(flat.sum(axis=0, keepdims=True))[0])
    return Score("F1", value, low, high, f"macro, {len(names)} labels", unit="%")


def confusion(outputs: Labels, references: Labels) -> tuple[list[str], np.ndarray]:
    """All labels, and how often each (row) was given as which (column).

    >>> names, counts = confusion([["a", "b"]], [["a", "a"]])
    >>> names, counts.tolist()
    (['a', 'b'], [[1, 1], [0, 0]])
    """
    _check(outputs, references)
    names = sorted({label for rows in (outputs, references) for row in rows for label in row})
    number = {name: place for place, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    for output, reference in zip(outputs, references, strict=True):
        for ours, true in zip(output, reference, strict=True):
            counts[number[true], number[ours]] += 1
    return names, counts


def _check(outputs: Labels, references: Labels) -> None:
    check_paired(outputs, references)
    for place, (output, reference) in enumerate(zip(outputs, references, strict=True), 1):
        if len(output) != len(reference):
            raise UserError(f"text {place} has {len(output)} labels but {len(reference)} references; give as many")
