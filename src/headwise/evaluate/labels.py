"""Metrics of labels: accuracy, macro F1 and the confusion matrix.

Outputs and references are lists of labels for each text: one for each word, or a single one.
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
    """Accuracy of labels, in percent; the bootstrap resamples texts, since the labels of a text depend on each other.

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
    """Macro F1: the mean over labels of 2 PR / (P + R), in percent.

    >>> round(macro_f1([["a", "b", "b"]], [["a", "b", "a"]], resamples=0).value, 4)
    66.6667
    """
    _check(outputs, references)
    names = sorted({label for row in references for label in row})
    numbers = {name: number for number, name in enumerate(names)}
    rows = np.zeros((len(references), 3, len(names)))  # right, predicted and true, by label
    for row, output, reference in zip(rows, outputs, references, strict=True):
        for predicted, true in zip(output, reference, strict=True):
            row[2, numbers[true]] += 1
            if predicted in numbers:
                row[1, numbers[predicted]] += 1
                row[0, numbers[predicted]] += predicted == true

    def mean(sums: np.ndarray) -> np.ndarray:
        right, predicted, true = sums.reshape(len(sums), 3, -1).swapaxes(0, 1)  # (R, 3 * L) -> 3 x (R, L)
        f1 = 2 * right / np.maximum(predicted + true, 1)
        return 100 * (f1 * (true > 0)).sum(1) / np.maximum((true > 0).sum(1), 1)

    flat = rows.reshape(len(rows), -1)  # (N, 3, L) -> (N, 3 * L)
    low, high = bootstrap_interval(flat, mean, resamples, seed)
    value = float(mean(flat.sum(axis=0, keepdims=True))[0])
    return Score("F1", value, low, high, f"macro, {len(names)} labels", unit="%")


def confusion_matrix(outputs: Labels, references: Labels) -> tuple[list[str], np.ndarray]:
    """All labels, and the counts of true labels (rows) by predicted ones (columns).

    >>> names, counts = confusion_matrix([["a", "b"]], [["a", "a"]])
    >>> names, counts.tolist()
    (['a', 'b'], [[1, 1], [0, 0]])
    """
    _check(outputs, references)
    names = sorted({label for rows in (outputs, references) for row in rows for label in row})
    numbers = {name: number for number, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    for output, reference in zip(outputs, references, strict=True):
        for predicted, true in zip(output, reference, strict=True):
            counts[numbers[true], numbers[predicted]] += 1
    return names, counts


def _check(outputs: Labels, references: Labels) -> None:
    check_paired(outputs, references)
    for number, (output, reference) in enumerate(zip(outputs, references, strict=True), 1):
        if len(output) != len(reference):
            raise UserError(f"text {number} has {len(output)} labels but {len(reference)} references; give as many")
