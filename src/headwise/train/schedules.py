"""Learning-rate schedules and their configs.

A schedule maps `step`, counted from 1, and `progress`, the fraction of the budget that is spent (0 before the first
step), to the learning rate. Decay follows progress, so a schedule works with budgets of steps, epochs, minutes and
tokens; warm-up is counted in steps and multiplies the decay. Reading a config must not import torch, so nothing here
does.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from headwise.config.base import Config, NonNegativeInt, PositiveFloat, PositiveInt, Table
from headwise.errors import UserError

Schedule = Callable[[int, float], float]
REWARM = 0.1  # a warm restart warms up for at most this fraction of the new budget
Floor = Annotated[float, Field(ge=0, le=1)]  # final learning rate as a fraction of the peak

SCHEDULES = Table("schedule", default="cosine", place="train.schedule")


class ScheduleConfig(Config):
    """A learning-rate schedule: `build()` returns a function of step and progress."""

    kind: str
    follows_budget: ClassVar[bool] = False  # decays over the budget, after a warm-up of `warmup` steps

    def build(self) -> Schedule:
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the schedule")


def noam(width: int, warmup: int, factor: float = 1.0) -> Schedule:
    """Learning-rate warmup and inverse square root decay (Vaswani et al. 2017, equation 3); the peak is
    factor · (width · warmup)^-0.5.

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

    def build(self) -> Schedule:
        if not self.width:
            raise UserError("train.schedule.width: noam needs the model's width; set it, or use cosine")
        return noam(self.width, self.warmup, self.factor)


def cosine(lr: float, warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Cosine decay: the cosine schedule of the learning rate with warm-up (Loshchilov & Hutter 2017, no restarts)."""
    return lambda step, progress: lr * _warmup(step, warmup) * (floor + (1 - floor) * (1 + cos(pi * progress)) / 2)


@SCHEDULES.add
class Cosine(ScheduleConfig):
    """Cosine decay from `lr` to `floor · lr` over the budget."""

    kind: Literal["cosine"] = "cosine"
    follows_budget = True
    lr: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 100
    floor: Floor = 0.0

    def build(self) -> Schedule:
        return cosine(self.lr, self.warmup, self.floor)


def linear(lr: float, warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Linear decay: the linear learning-rate schedule with warm-up."""
    return lambda step, progress: lr * _warmup(step, warmup) * (1 - (1 - floor) * progress)


@SCHEDULES.add
class Linear(ScheduleConfig):
    """Linear decay from `lr` to `floor · lr` over the budget."""

    kind: Literal["linear"] = "linear"
    follows_budget = True
    lr: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 100
    floor: Floor = 0.0

    def build(self) -> Schedule:
        return linear(self.lr, self.warmup, self.floor)


def wsd(
    lr: float, warmup: int = 0, decay: float = 0.2, shape: Literal["linear", "sqrt"] = "linear", floor: float = 0.0
) -> Schedule:
    """Warmup-stable-decay (WSD): constant `lr`, then decay over the last fraction `decay` of the budget.

    With x the progress through the decay, its factor is 1 - x or, with `sqrt`, 1 - x^0.5 (Hägele et al. 2024).

    >>> rate = wsd(1.0, decay=0.25, shape="sqrt")
    >>> [rate(1, progress) for progress in (0.0, 0.75, 0.8125, 1.0)]
    [1.0, 1.0, 0.5, 0.0]
    """

    def rate(step: int, progress: float) -> float:
        left = min(1.0, (1 - progress) / decay)  # 1 - x
        factor = left if shape == "linear" else 1 - (1 - left) ** 0.5
        return lr * _warmup(step, warmup) * (floor + (1 - floor) * factor)

    return rate


@SCHEDULES.add
class Wsd(ScheduleConfig):
    """Constant `lr`, then decay to `floor · lr` over the last fraction `decay` of the budget."""

    kind: Literal["wsd"] = "wsd"
    follows_budget = True
    lr: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 100
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2
    shape: Literal["linear", "sqrt"] = "linear"
    floor: Floor = 0.0

    def build(self) -> Schedule:
        return wsd(self.lr, self.warmup, self.decay, self.shape, self.floor)


def inverse_sqrt(lr: float, warmup: int) -> Schedule:
    """Inverse square root decay: the inverse square root learning-rate schedule with warm-up."""
    return lambda step, progress: lr * min(step / warmup, (warmup / step) ** 0.5)


@SCHEDULES.add
class InverseSqrt(ScheduleConfig):
    """Linear warm-up to `lr`, then `lr · (warmup / step)^0.5`: Noam by its peak."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    lr: PositiveFloat = 1e-3
    warmup: PositiveInt = 4000

    def build(self) -> Schedule:
        return inverse_sqrt(self.lr, self.warmup)


def relative_step(warmup_init: bool = False) -> Schedule:
    """Relative step sizes, Adafactor's learning-rate schedule (Shazeer & Stern 2018, algorithm 6).

    DISCREPANCY: the released code counts the updates of each weight; here skipped updates count too.
    """
    return lambda step, progress: min(1e-6 * step if warmup_init else 1e-2, step**-0.5)


@SCHEDULES.add
class RelativeStep(ScheduleConfig):
    """min(10^-2, step^-0.5), or min(10^-6 · step, step^-0.5) with `warmup_init`: for adafactor."""

    kind: Literal["relative_step"] = "relative_step"
    warmup_init: bool = False

    def build(self) -> Schedule:
        return relative_step(self.warmup_init)


def constant(lr: float, warmup: int = 0) -> Schedule:
    """Constant learning rate with warm-up."""
    return lambda step, progress: lr * _warmup(step, warmup)


@SCHEDULES.add
class Constant(ScheduleConfig):
    """Constant `lr` after an optional warm-up."""

    kind: Literal["constant"] = "constant"
    lr: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 0

    def build(self) -> Schedule:
        return constant(self.lr, self.warmup)


def warm_restart(config: ScheduleConfig, start: int) -> Schedule:
    """Warm restart (Loshchilov & Hutter 2017) of a run that is trained longer from step `start` on.

    A schedule that follows the budget warms up again, for `warmup` steps or a tenth of the new budget, whichever is
    shorter, and decays over the new budget, as in continued pretraining (Ibrahim et al. 2024); `progress` is the
    fraction of the new budget. All others depend on the step and go on as before.

    >>> rate = warm_restart(Linear(lr=1.0, warmup=4), start=100)
    >>> [rate(step, progress) for step, progress in ((101, 0.0), (102, 0.25), (103, 0.5))]
    [0.25, 0.75, 0.5]
    """
    if not config.follows_budget:
        return config.build()
    settings: Any = config
    decay, warmup = settings.replace(warmup=0).build(), max(settings.warmup, 1)

    def rate(step: int, progress: float) -> float:
        warmed = max(max(step - start, 1) / warmup, progress / REWARM)
        return decay(step, progress) * min(1.0, warmed)

    return rate


def _warmup(step: int, warmup: int) -> float:
    """Linear warm-up over the first `warmup` steps."""
    return min(1.0, step / max(warmup, 1))
