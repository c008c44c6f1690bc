"""The least loss that so much compute buys: the lower envelope of all learning curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.scaling.fit import Floats
from headwise.scaling.resample import resampled
from headwise.scaling.values import Rung

Places = NDArray[np.intp]


def frontier(rungs: Sequence[Rung]) -> tuple[Floats, Floats, Floats]:
    """Compute and loss where each size comes nearest to the envelope, (n,) each; the losses of resamples, (R, n).

    Power laws, with or without a floor, are convex in the logarithms, so the envelope is a convex hull: it passes from
    the end of one run to that of another without the middle of a third, whose learning rate has not come down yet.
    """
    compute = np.concatenate([rung.compute for rung in rungs])  # (P,) validations of all rungs
    loss = np.concatenate([rung.nll.mean(0) for rung in rungs])
    size = np.repeat([rung.parameters for rung in rungs], [len(rung.tokens) for rung in rungs])
    draws = np.concatenate(resampled([rung.nll for rung in rungs]), axis=1)  # (R, P)
    order = np.lexsort((loss, compute))
    nearest = order[touching(np.log(compute[order]), np.log(loss[order]), size[order])]
    return compute[nearest], loss[nearest], draws[:, nearest]


def touching(x: Floats, y: Floats, size: NDArray[np.int64]) -> Places:
    """Of each size the point that is nearest to the lower hull of all, in the order of x, which is ascending.

    The hull begins with the smallest size alone, which is only its learning curve: of several points on the hull the
    smallest size gives the last one, where others take over, and any other size the first.
    """
    hull = lower_hull(x, y)
    gap = y - np.interp(x, x[hull], y[hull])
    gap[hull] = 0.0
    found = []
    for number, each in enumerate(np.unique(size)):
        own = np.flatnonzero(size == each)
        on = own[gap[own] == gap[own].min()]
        found.append(on[-1] if number == 0 else on[0])
    return np.sort(found)


def lower_hull(x: Floats, y: Floats) -> Places:
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
