"""Attachment scores of dependency trees that are written as bracketed sequences (`headwise.text.brackets`).

As in the CoNLL 2018 shared task: punctuation counts, and of a relation such as nsubj:pass the part before the colon. A
word that an output does not have is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.evaluate.bootstrap import bootstrap_interval, check_reference_lists
from headwise.evaluate.score import Score
from headwise.text.brackets import count_words, read_brackets


def attachment_scores(
    outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, seed: int = 0
) -> list[Score]:
    """Unlabelled and labelled attachment score (UAS, LAS): the percentage of words with the right head, and with the
    right head and relation; and the percentage of outputs that are well-formed trees. Of several references that with
    the most right words counts.

    >>> [score.value for score in attachment_scores(["( det root* )"], [["( amod root* )"]], resamples=0)]
    [100.0, 50.0, 100.0]
    """
    check_reference_lists(outputs, references)
    pairs = zip(outputs, references, strict=True)
    counts = np.array([max(compare_trees(output, text) for text in texts) for output, texts in pairs], float)
    names = {"LAS": (0, 2), "UAS": (1, 2), "well-formed": (3, 4)}
    order = ("UAS", "LAS", "well-formed")
    return [_build_score(name, counts[:, names[name]], resamples, seed) for name in order]


def compare_trees(output: str, reference: str) -> tuple[int, int, int, int, int]:
    """Words with the right head and relation, with the right head, all words; whether the output is well formed, 1."""
    length = count_words(reference)
    ours, true = (read_brackets(text, length) for text in (output, reference))
    heads = [a == b for a, b in zip(ours.heads, true.heads, strict=True)]
    labels = [a.partition(":")[0] == b.partition(":")[0] for a, b in zip(ours.labels, true.labels, strict=True)]
    return sum(map(min, heads, labels)), sum(heads), length, int(ours.well_formed), 1


def _build_score(name: str, counts: np.ndarray, resamples: int, seed: int) -> Score:
    def share(sums: np.ndarray) -> np.ndarray:
        return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)

    total = counts.sum(axis=0, keepdims=True)
    low, high = bootstrap_interval(counts, share, resamples, seed)
    return Score(name, float(share(total)[0]), low, high, f"{len(counts)} items", unit="%")
