"""Power laws by least squares, vectorised over many fits.

    L(x) = (x_c / x)^a                  Kaplan et al. 2020, equations 1.1-1.3
    L(x) = L_inf + (x_c / x)^a          Henighan et al. 2020, equation 1.1: with an irreducible loss

Shapes: n points, R fits at once; `...` is (R,) or ().
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GOLDEN = (5**0.5 - 1) / 2
EXPONENTS = np.geomspace(1e-3, 10, 81)  # initial grid of exponents, in steps of 12 %


@dataclass(frozen=True)
class Law:
    """floor + height (x / centre)^-exponent. The centre is the geometric mean of the points, so that the height is a
    loss within their range and not extrapolated to x = 1."""

    exponent: Floats  # (...)
    height: Floats
    floor: Floats
    centre: float

    def __call__(self, x: Floats) -> Floats:
        """(n,) -> (..., n)"""
        decay = np.exp(-self.exponent[..., None] * np.log(x / self.centre))
        return self.floor[..., None] + self.height[..., None] * decay

    def misfit(self, x: Floats, loss: Floats) -> Floats:
        """The root of the mean squared relative error, (...)."""
        return np.sqrt(((self(x) / loss - 1) ** 2).mean(-1))


def fit_power_law(x: Floats, loss: Floats) -> Law:
    """Fit a scaling law without a floor: a straight line through the logarithms; x (n,), loss (..., n).

    >>> x = np.array([1e3, 1e4, 1e5])
    >>> float(fit_power_law(x, (1e13 / x) ** 0.076).exponent.round(6))
    0.076
    """
    centre, u = _centre_logs(x)
    y = np.log(loss)
    return Law(-(y @ u) / (u @ u), np.exp(y.mean(-1)), np.zeros(y.shape[:-1]), centre)


def fit_with_floor(x: Floats, loss: Floats) -> Law:
    """A power law with a non-negative floor (irreducible loss).

    For a given exponent floor and height are a linear regression, so only the exponent is searched for (variable
    projection: Golub and Pereyra 1973). Errors are relative to the loss, as in the logarithm. Profiling over the floor
    instead would fit log(L - L_inf), where the smallest losses, next to the floor, dominate.

    >>> x = np.geomspace(1e3, 1e6, 6)
    >>> law = fit_with_floor(x, 1.5 + (1e3 / x) ** 0.4)
    >>> float(law.exponent.round(6)), float(law.floor.round(6))
    (0.4, 1.5)
    """
    centre, u = _centre_logs(x)

    def error(exponent: Floats) -> Floats:
        floor, height = _solve_floor_and_height(exponent, u, loss)
        fall = np.exp(-exponent[..., None] * u)
        return (((floor[..., None] + height[..., None] * fall) / loss - 1) ** 2).sum(-1)

    shape = loss.shape[:-1]
    errors = np.stack([error(np.full(shape, slope)) for slope in EXPONENTS])  # (slopes, ...)
    best = errors.argmin(0)
    exponent = golden_section_search(
        error, EXPONENTS[np.maximum(best - 1, 0)], EXPONENTS[np.minimum(best + 1, len(EXPONENTS) - 1)]
    )
    floor, height = _solve_floor_and_height(exponent, u, loss)
    return Law(exponent, height, floor, centre)


def golden_section_search(error: Callable[[Floats], Floats], low: Floats, high: Floats, rounds: int = 50) -> Floats:
    """Minimise `error` between `low` and `high` by golden-section search (Kiefer 1953), elementwise.

    >>> golden_section_search(lambda x: (x - np.array([1.0, 2.0])) ** 2, np.zeros(2), np.full(2, 5.0)).round(6)
    array([1., 2.])
    """
    for _ in range(rounds):
        step = GOLDEN * (high - low)
        left, right = high - step, low + step
        falls = error(left) > error(right)
        low, high = np.where(falls, left, low), np.where(falls, high, right)
    return (low + high) / 2


def _centre_logs(x: Floats) -> tuple[float, Floats]:
    """The geometric mean of x, and log x minus its mean."""
    logs = np.log(x)
    return float(np.exp(logs.mean())), logs - logs.mean()


def _solve_floor_and_height(exponent: Floats, u: Floats, loss: Floats) -> tuple[Floats, Floats]:
    """The best floor and height for an exponent: regress 1 on 1 / L and decay / L."""
    p = 1 / loss
    q = np.exp(-exponent[..., None] * u) * p  # (..., n)
    pp, pq, qq, p1, q1 = ((a * b).sum(-1) for a, b in ((p, p), (p, q), (q, q), (p, 1), (q, 1)))
    floor = np.maximum((p1 * qq - q1 * pq) / (pp * qq - pq**2), 0.0)
    return floor, (q1 - floor * pq) / qq
