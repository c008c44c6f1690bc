"""What came out of a ladder, as frozen values: rungs, and how the loss goes with N, D and C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headwise.scaling.config import FEWEST
from headwise.scaling.fit import Floats, Law, floored, straight
from headwise.scaling.resample import interval

# form -> how it is fitted, and how many points it needs: one more than it has constants
FORMS: dict[str, tuple[Callable[[Floats, Floats], Law], int]] = {
    "power law": (straight, FEWEST),
    "with a floor": (floored, FEWEST + 1),
}


@dataclass(frozen=True)
class Rung:
    """One size, trained on so many tokens over S seeds and validated V times."""

    size: str
    parameters: int  # N
    tokens: Floats  # (V,) read before each validation; the last is D
    nll: Floats  # (S, V) of the validation part, in nats a token
    rate: float = 0.0  # the learning rate that did best, where several were tried
    repeats: bool = False  # whether some text was read twice

    @property
    def data(self) -> float:
        return float(self.tokens[-1])

    @property
    def losses(self) -> Floats:
        """(S,) of each seed at its best validation, as if stopped there."""
        return self.nll.min(1)

    @property
    def compute(self) -> Floats:
        """C = 6 N D, (V,): two operations a weight forward and four backward (Kaplan et al. 2020, 2.1)."""
        return 6.0 * self.parameters * self.tokens


@dataclass(frozen=True)
class Quantity:
    """What the loss is set against, and the exponent that Kaplan et al. (2020) found for it."""

    name: str
    what: str
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
    """A law, and the same fitted to each resample."""

    law: Law
    draws: Law
    misfit: float

    @property
    def exponent(self) -> tuple[float, float, float]:
        """With both ends of its interval."""
        return _with_interval(self.law.exponent, self.draws.exponent)

    @property
    def floor(self) -> tuple[float, float, float]:
        return _with_interval(self.law.floor, self.draws.floor)


@dataclass(frozen=True)
class Relation:
    """Loss over one quantity: n points, their R resamples, and the laws that they allow."""

    quantity: Quantity
    x: Floats  # (n,) ascending
    loss: Floats  # (n,) means over seeds
    draws: Floats  # (R, n)
    seen: Sequence[Floats] = ()  # the losses of each point's seeds

    @property
    def decades(self) -> float:
        return float(np.log10(self.x[-1] / self.x[0]))

    @cached_property
    def fits(self) -> Mapping[str, Fit]:
        """By form; without those that have as many constants as there are points."""
        found = {}
        for form, (fit, fewest) in FORMS.items():
            if len(self.x) >= fewest:
                law = fit(self.x, self.loss)
                found[form] = Fit(law, fit(self.x, self.draws), float(law.misfit(self.x, self.loss)))
        return found


@dataclass(frozen=True)
class Scaling:
    """A ladder that was climbed."""

    title: str
    rungs: Sequence[Rung]
    relations: Mapping[str, Relation]  # by the quantity's name
    failures: Mapping[str, str] = field(default_factory=dict)  # run -> why


def _with_interval(value: Floats, draws: Floats) -> tuple[float, float, float]:
    low, high = interval(draws)
    return float(value), float(low), float(high)
