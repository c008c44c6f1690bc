"""Bootstrap intervals over items (Efron 1979; for translation: Koehn 2004).

A corpus score is a function of sums over items: errors and lengths, or matched and total n-grams.
Resampling items therefore only adds up rows of those statistics again; no text is scored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.errors import UserError

Floats = NDArray[np.float64]


def bootstrap_interval(
    statistics: ArrayLike,
    score: Callable[[Floats], Floats],
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """Percentile bootstrap: the interval of `score` when items are resampled with replacement; NaN without resamples.

    `statistics` holds one row per item; `score` maps sums of rows (resamples, k) to (resamples,).

    >>> bootstrap_interval([[1.0], [1.0], [1.0]], lambda sums: sums[:, 0] / 3)
    (1.0, 1.0)
    """
    rows = np.asarray(statistics, dtype=np.float64)  # (items, k)
    if not resamples or not np.isfinite(rows).all():  # infinite: a text of probability 0
        return float("nan"), float("nan")
    items = len(rows)
    random = np.random.default_rng(seed)
    # counts of the drawn items times their rows: one small product for each resample, no (resamples, items) array
    sums = np.stack(
        [np.bincount(random.integers(items, size=items), minlength=items) @ rows for _ in range(resamples)]
    )  # (resamples, k)
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(score(sums), [tail, 100 - tail])
    return float(low), float(high)


def check_paired(outputs: Sized, references: Sized) -> None:
    """Refuse an empty test set, and outputs and references of different numbers."""
    if len(outputs) != len(references):
        raise UserError(f"there are {len(outputs)} outputs but {len(references)} references; give one entry per item")
    if len(outputs) == 0:
        raise UserError("there is nothing to score: the test set is empty")


def check_reference_lists(outputs: Sized, references: Sequence[Sized]) -> None:
    """As `check_paired`, for items with a list of references each; an empty list is refused."""
    check_paired(outputs, references)
    for number, texts in enumerate(references, 1):
        if len(texts) == 0:
            raise UserError(f"item {number} has no reference; give at least one")
