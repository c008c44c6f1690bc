"""Learning rates as pure functions of the step and of the progress through the budget.

A rate is asked with `step`, counted from 1, and `progress`, the share of the budget that is
spent (0 before the first step). Decay follows progress and not the step, so that one schedule
serves budgets of steps, epochs and minutes alike; warm-up is counted in steps and multiplies it.
"""

from collections.abc import Callable
from math import cos, pi

Rate = Callable[[int, float], float]


def noam(width: int, warmup: int, factor: float = 1.0) -> Rate:
    """Vaswani et al. 2017, equation 3; its peak is factor · (width · warmup)^-0.5.

    >>> f"{noam(512, 4000)(4000, 0.0):.4g}"
    '0.0006988'
    """
    return lambda step, progress: factor * width**-0.5 * min(step**-0.5, step * warmup**-1.5)


def inverse_sqrt(lr: float, warmup: int) -> Rate:
    return lambda step, progress: lr * min(step / warmup, (warmup / step) ** 0.5)


def constant(lr: float, warmup: int = 0) -> Rate:
    return lambda step, progress: lr * _ramp(step, warmup)


def linear(lr: float, warmup: int = 0, floor: float = 0.0) -> Rate:
    return lambda step, progress: lr * _ramp(step, warmup) * (1 - (1 - floor) * progress)


def cosine(lr: float, warmup: int = 0, floor: float = 0.0) -> Rate:
    """Loshchilov & Hutter 2017 without restarts."""
    return lambda step, progress: lr * _ramp(step, warmup) * (floor + (1 - floor) * (1 + cos(pi * progress)) / 2)


def _ramp(step: int, warmup: int) -> float:
    return min(1.0, step / max(warmup, 1))
