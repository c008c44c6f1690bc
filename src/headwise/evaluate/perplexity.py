"""Perplexity, exp of the mean negative log-likelihood per token, and nats per character."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval, check_paired
from headwise.evaluate.score import Score


def nats_per_character(
    nll: ArrayLike, counts: ArrayLike, characters: int, resamples: int = 1000, seed: int = 0
) -> Score:
    """Nats per character, bits per character times ln 2: comparable between models with different tokenisers.

    >>> nats_per_character([2.0, 4.0], [1, 2], characters=12).value
    0.5
    """
    statistics = np.column_stack([np.ravel(nll), np.ravel(counts)]).astype(float)
    check_paired(np.ravel(nll), np.ravel(counts))
    per_token = statistics[:, 1].sum() / max(characters, 1)

    def mean(sums: np.ndarray) -> np.ndarray:
        return per_token * sums[:, 0] / np.maximum(sums[:, 1], 1)

    low, high = bootstrap_interval(statistics, mean, resamples, seed)
    value = float(mean(statistics.sum(axis=0, keepdims=True))[0])
    return Score("nats", value, low, high, f"per character, {characters} characters")


def perplexity(nll: ArrayLike, counts: ArrayLike, resamples: int = 1000, seed: int = 0) -> Score:
    """Perplexity from each item's summed negative log-likelihood (in nats) and its number of tokens.

    >>> round(perplexity([np.log(8)], [3]).value, 6)
    2.0
    """
    statistics = np.column_stack([np.ravel(nll), np.ravel(counts)]).astype(float)
    check_paired(np.ravel(nll), np.ravel(counts))
    if not (statistics[:, 1] > 0).all():
        raise UserError("perplexity needs at least one token in every item; drop the empty ones")

    def exponential(sums: np.ndarray) -> np.ndarray:
        return np.exp(sums[:, 0] / sums[:, 1])

    low, high = bootstrap_interval(statistics, exponential, resamples, seed)
    value = float(exponential(statistics.sum(axis=0, keepdims=True))[0])
    return Score("perplexity", value, low, high, f"{int(statistics[:, 1].sum())} tokens")
