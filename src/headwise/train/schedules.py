"""Learning-rate schedules: pure functions of the step and of the progress through the budget, and their configs.

A rate is asked with `step`, counted from 1, and `progress`, the share of the budget that is
spent (0 before the first step). Decay follows progress and not the step, so that one schedule
serves budgets of steps, epochs and minutes alike; warm-up is counted in steps and multiplies it.
Configs are read without torch, so nothing here may import it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi
from typing import Annotated, Literal

from pydantic import Field

from headwise.config.base import Config, NonNegativeInt, PositiveFloat, PositiveInt, Table
from headwise.errors import UserError

Rate = Callable[[int, float], float]
Floor = Annotated[float, Field(ge=0, le=1)]  # of the rate, as a share of its peak

SCHEDULES = Table("schedule", default="cosine", place="train.schedule")


class ScheduleConfig(Config):
    """A learning-rate schedule: `build()` gives the rate at a step and a share of the budget."""

    kind: str

    def build(self) -> Rate:
        raise TypeError(f"{type(self).__name__} has no build method")


def noam(width: int, warmup: int, factor: float = 1.0) -> Rate:
    """Learning-rate warmup and inverse square root decay: the learning-rate schedule of Vaswani et al. 2017, equation
    3; its peak is factor · (width · warmup)^-0.5.

    >>> f"{noam(512, 4000)(4000, 0.0):.4g}"
    '0.0006988'
    """
    return lambda step, progress: factor * width**-0.5 * min(step**-0.5, step * warmup**-1.5)


@SCHEDULES.add
class Noam(ScheduleConfig):
    """width^-0.5 · min(step^-0.5, step · warmup^-1.5), equation 3 of "Attention is all you need"."""

    kind: Literal["noam"] = "noam"
    warmup: PositiveInt = 4000
    factor: PositiveFloat = 1.0
    width: NonNegativeInt = 0  # 0: the model's, see TrainConfig.for_width

    def build(self) -> Rate:
        if not self.width:
            raise UserError("train.schedule.width: noam needs the model's width; set it, or take cosine")
        return noam(self.width, self.warmup, self.factor)


def cosine(lr: float, warmup: int = 0, floor: float = 0.0) -> Rate:
    """Cosine decay: cosine learning-rate schedule with warm-up (Loshchilov & Hutter 2017 without restarts)."""
    return lambda step, progress: lr * _ramp(step, warmup) * (floor + (1 - floor) * (1 + cos(pi * progress)) / 2)


@SCHEDULES.add
class Cosine(ScheduleConfig):
    """Half a cosine from `lr` down to `floor · lr` over the whole budget."""

    kind: Literal["cosine"] = "cosine"
    lr: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 100
    floor: Floor = 0.0

    def build(self) -> Rate:
        return cosine(self.lr, self.warmup, self.floor)


def linear(lr: float, warmup: int = 0, floor: float = 0.0) -> Rate:
    """Linear learning-rate schedule with warm-up."""
    return lambda step, progress: lr * _ramp(step, warmup) * (1 - (1 - floor) * progress)


@SCHEDULES.add
class Linear(ScheduleConfig):
    """A straight line from `lr` down to `floor · lr` over the whole budget."""

    kind: Literal["linear"] = "linear"
    lr: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 100
    floor: Floor = 0.0

    def build(self) -> Rate:
        return linear(self.lr, self.warmup, self.floor)


def wsd(
    lr: float, warmup: int = 0, decay: float = 0.2, shape: Literal["linear", "sqrt"] = "linear", floor: float = 0.0
) -> Rate:
    """Warm-up-stable-decay (WSD) learning-rate schedule: `lr`, then down over the last `decay` of the budget.

    With x the share of the decay that is done, the rate falls by 1 - x or, as `sqrt`, 1 - x^0.5 (Hägele et al. 2024).

    >>> rate = wsd(1.0, decay=0.25, shape="sqrt")
    >>> [rate(1, progress) for progress in (0.0, 0.75, 0.8125, 1.0)]
    [1.0, 1.0, 0.5, 0.0]
    """

    def rate(step: int, progress: float) -> float:
        left = min(1.0, (1 - progress) / decay)
        fall = left if shape == "linear" else 1 - (1 - left) ** 0.5
        return lr * _ramp(step, warmup) * (floor + (1 - floor) * fall)

    return rate


@SCHEDULES.add
class Wsd(ScheduleConfig):
    """Warm-up, `lr`, then down to `floor · lr` over the last share `decay` of the budget."""

    kind: Literal["wsd"] = "wsd"
    lr: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 100
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2
    shape: Literal["linear", "sqrt"] = "linear"
    floor: Floor = 0.0

    def build(self) -> Rate:
        return wsd(self.lr, self.warmup, self.decay, self.shape, self.floor)


def inverse_sqrt(lr: float, warmup: int) -> Rate:
    """Inverse square root learning-rate schedule with warm-up."""
    return lambda step, progress: lr * min(step / warmup, (warmup / step) ** 0.5)


@SCHEDULES.add
class InverseSqrt(ScheduleConfig):
    """Up to `lr` at `warmup`, then `lr · (warmup / step)^0.5`: Noam with its peak named."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    lr: PositiveFloat = 1e-3
    warmup: PositiveInt = 4000

    def build(self) -> Rate:
        return inverse_sqrt(self.lr, self.warmup)


def relative_step(warmup_init: bool = False) -> Rate:
    """Relative step sizes, Adafactor's learning-rate schedule (Shazeer & Stern 2018, algorithm 6).

    DISCREPANCY: the released code counts the updates of each weight; here refused updates count too.
    """
    return lambda step, progress: min(1e-6 * step if warmup_init else 1e-2, step**-0.5)


@SCHEDULES.add
class RelativeStep(ScheduleConfig):
    """min(10^-2, step^-0.5), or min(10^-6 · step, step^-0.5) with `warmup_init`: for adafactor."""

    kind: Literal["relative_step"] = "relative_step"
    warmup_init: bool = False

    def build(self) -> Rate:
        return relative_step(self.warmup_init)


def constant(lr: float, warmup: int = 0) -> Rate:
    """Constant learning-rate schedule with warm-up."""
    return lambda step, progress: lr * _ramp(step, warmup)


@SCHEDULES.add
class Constant(ScheduleConfig):
    """`lr` throughout, after an optional warm-up."""

    kind: Literal["constant"] = "constant"
    lr: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 0

    def build(self) -> Rate:
        return constant(self.lr, self.warmup)


def _ramp(step: int, warmup: int) -> float:
    """Linear warm-up over the first `warmup` steps."""
    return min(1.0, step / max(warmup, 1))
