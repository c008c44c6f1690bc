"""The compute frontier: the lower envelope of all learning curves in loss over compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.scaling.fit import Floats
from headwise.scaling.resample import resample_means
from headwise.scaling.values import Rung

Indices = NDArray[np.intp]


def find_frontier(rungs: Sequence[Rung]) -> tuple[Floats, Floats, Floats]:
    """Compute and loss of each size at its point nearest to the envelope, (n,) each; the resampled losses, (R, n).

    Power laws, with or without a floor, are convex in the logarithms, so the envelope is a convex hull: it passes from
    the end of one run to that of another and skips the middle of runs, where the learning rate has not decayed yet.
    """
    compute = np.concatenate([rung.compute for rung in rungs])  # (P,) validations of all rungs
    loss = np.concatenate([rung.nll.mean(0) for rung in rungs])
    size = np.repeat([rung.parameters for rung in rungs], [len(rung.tokens) for rung in rungs])
    draws = np.concatenate(resample_means([rung.nll for rung in rungs]), axis=1)  # (R, P)
    order = np.lexsort((loss, compute))
    nearest = order[nearest_to_hull(np.log(compute[order]), np.log(loss[order]), size[order])]
    return compute[nearest], loss[nearest], draws[:, nearest]


def nearest_to_hull(x: Floats, y: Floats, size: NDArray[np.int64]) -> Indices:
    """The index of the point of each size that is nearest to the lower hull, sorted; x must ascend.

    The hull begins with the learning curve of the smallest size alone. So of several points on the hull the smallest
    size contributes the last one, and any other size the first.
    """
    hull = lower_hull(x, y)
    gap = y - np.interp(x, x[hull], y[hull])
    gap[hull] = 0.0
    nearest = []
    for order, value in enumerate(np.unique(size)):
        indices = np.flatnonzero(size == value)
        candidates = indices[gap[indices] == gap[indices].min()]
        nearest.append(candidates[-1] if order == 0 else candidates[0])
    return np.sort(nearest)


def lower_hull(x: Floats, y: Floats) -> Indices:
    """The points of the lower convex hull down to the lowest one, x ascending (Andrew 1979).

    >>> lower_hull(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([4.0, 3.0, 1.0, 0.5, 0.7])).tolist()
    [0, 2, 3]
    """
    hull: list[int] = []
    for new in range(int(y.argmin()) + 1):
        while len(hull) > 1 and _above(hull[-2], hull[-1], new, x, y):
            hull.pop()
        hull.append(new)
    return np.array(hull)


def _above(a: int, b: int, c: int, x: Floats, y: Floats) -> bool:
    """Whether point b is on or above the line from a to c."""
    return bool((y[b] - y[a]) * (x[c] - x[a]) >= (y[c] - y[a]) * (x[b] - x[a]))
