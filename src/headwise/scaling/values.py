"""The results of a ladder as frozen values: rungs, and loss as a function of N, D and C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headwise.scaling.config import MIN_POINTS
from headwise.scaling.fit import Floats, Law, fit_power_law, fit_with_floor
from headwise.scaling.resample import interval

# form -> fit function, and the number of points it needs: one more than its constants
FORMS: dict[str, tuple[Callable[[Floats, Floats], Law], int]] = {
    "power law": (fit_power_law, MIN_POINTS),
    "with a floor": (fit_with_floor, MIN_POINTS + 1),
}


@dataclass(frozen=True)
class Rung:
    """One size trained on one number of tokens, with S seeds and V validations."""

    size: str
    parameters: int  # N
    tokens: Floats  # (V,) read before each validation; the last is D
    nll: Floats  # (S, V) validation loss, in nats per token
    rate: float = 0.0  # the best learning rate, if several were tried
    repeats: bool = False  # whether some text was read twice

    @property
    def data(self) -> float:
        return float(self.tokens[-1])

    @property
    def losses(self) -> Floats:
        """The loss of each seed at its best validation, (S,)."""
        return self.nll.min(1)

    @property
    def compute(self) -> Floats:
        """C = 6 N D, (V,): two operations a weight forward and four backward (Kaplan et al. 2020, 2.1)."""
        return 6.0 * self.parameters * self.tokens


@dataclass(frozen=True)
class Quantity:
    """The x axis of a law, and the exponent published by Kaplan et al. (2020)."""

    name: str
    description: str
    published: float


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("N", "parameters without tables", 0.076),
        Quantity("D", "tokens", 0.095),
        Quantity("C", "FLOPs = 6 N D", 0.050),
    )
}


@dataclass(frozen=True)
class Fit:
    """A law fitted to the means, and to each resample."""

    law: Law
    draws: Law
    misfit: float

    @property
    def exponent(self) -> tuple[float, float, float]:
        """Value, low and high."""
        return _with_interval(self.law.exponent, self.draws.exponent)

    @property
    def floor(self) -> tuple[float, float, float]:
        return _with_interval(self.law.floor, self.draws.floor)


@dataclass(frozen=True)
class Relation:
    """Loss over one quantity: n points, their R resamples, and the fitted laws."""

    quantity: Quantity
    x: Floats  # (n,) ascending
    loss: Floats  # (n,) means over seeds
    draws: Floats  # (R, n)
    seed_losses: Sequence[Floats] = ()  # the losses of each point's seeds

    @property
    def decades(self) -> float:
        return float(np.log10(self.x[-1] / self.x[0]))

    @cached_property
    def fits(self) -> Mapping[str, Fit]:
        """The fits by form; a form needs more points than it has constants."""
        fitted = {}
        for form, (fit, fewest) in FORMS.items():
            if len(self.x) >= fewest:
                law = fit(self.x, self.loss)
                fitted[form] = Fit(law, fit(self.x, self.draws), float(law.misfit(self.x, self.loss)))
        return fitted


@dataclass(frozen=True)
class Scaling:
    """The results of a ladder."""

    title: str
    rungs: Sequence[Rung]
    relations: Mapping[str, Relation]  # by the quantity's name
    failures: Mapping[str, str] = field(default_factory=dict)  # run -> why


def _with_interval(value: Floats, draws: Floats) -> tuple[float, float, float]:
    low, high = interval(draws)
    return float(value), float(low), float(high)
