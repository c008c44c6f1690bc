"""What a decoder reads while it is taught: the gold tokens, or some of its own (Bengio et al. 2015).

The share of own tokens is `max_rate` * (1 - e_i) with the paper's schedules e_i, the probability of a gold token. i
counts per cent of the budget, so that a schedule ends where it should whatever the budget is.

    >>> [round(Linear(max_rate=0.4).rate(spent), 2) for spent in (0.0, 0.5, 1.0)]
    [0.0, 0.2, 0.4]
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from headwise.config.base import Config, Table

OWN_INPUTS = Table("schedule of own inputs", default="linear")


class ScheduledSampling(Config):
    """Own tokens, more and more. `gold` is e_i of section 2.4."""

    kind: str
    max_rate: float = Field(0.25, ge=0, le=1)
    sample: bool = False  # own tokens are drawn from the model's distribution, instead of its best guesses

    def rate(self, progress: float) -> float:
        """The probability of an own token when this share of the budget is spent."""
        return self.max_rate * (1 - self.gold(100 * progress))

    def gold(self, i: float) -> float:
        raise TypeError(f"{type(self).__name__} has no schedule")


@OWN_INPUTS.add
class Never(ScheduledSampling):
    """Teacher forcing: every token is gold (Williams and Zipser 1989)."""

    kind: Literal["never"] = "never"

    def gold(self, i: float) -> float:
        return 1.0


@OWN_INPUTS.add
class Linear(ScheduledSampling):
    """A straight line to 0 at `until`, a share of the budget."""

    kind: Literal["linear"] = "linear"
    until: float = Field(1.0, gt=0, le=1)

    def gold(self, i: float) -> float:
        return max(0.0, 1 - i / (100 * self.until))


@OWN_INPUTS.add
class Exponential(ScheduledSampling):
    """k^i."""

    kind: Literal["exponential"] = "exponential"
    k: float = Field(0.95, gt=0, lt=1)

    def gold(self, i: float) -> float:
        return self.k**i


@OWN_INPUTS.add
class InverseSigmoid(ScheduledSampling):
    """k / (k + exp(i / k)): gold for long, and half of it at k ln k per cent."""

    kind: Literal["inverse-sigmoid"] = "inverse-sigmoid"
    k: float = Field(15.0, ge=1)

    def gold(self, i: float) -> float:
        return self.k / (self.k + math.exp(i / self.k))
