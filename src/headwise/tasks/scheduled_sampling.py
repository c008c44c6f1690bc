"""Scheduled sampling (Bengio et al. 2015) in two passes (Mihaylova and Martins 2019).

The first pass reads the gold tokens, without gradient, and guesses the next ones; some of the guesses take the places
of the gold tokens in what the second pass reads. Both passes are parallel, so one way serves recurrent networks and
Transformers. DISCREPANCY: Bengio et al. go token by token, where a guess follows earlier guesses; here it follows gold.

The share of own tokens is `max_rate` * (1 - e_i) with the paper's schedules e_i, the probability of a gold token. i
counts per cent of the budget, so that a schedule ends where it should whatever the budget is.

    >>> [round(Linear(max_rate=0.4).rate(spent), 2) for spent in (0.0, 0.5, 1.0)]
    [0.0, 0.2, 0.4]
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.config.base import Config, Table, slot
from headwise.data.collate import PairBatch
from headwise.text import EOS, PAD

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


if TYPE_CHECKING:  # to a type checker, the config of what a slot holds
    AnyOwnInputs: TypeAlias = ScheduledSampling
else:
    AnyOwnInputs = slot(OWN_INPUTS)


def sample_inputs(model: nn.Module, batch: PairBatch, config: ScheduledSampling, progress: float) -> Tensor:
    """Scheduled sampling: what the decoder reads, (B, T): gold tokens, of which a share that grows with `progress` is
    the model's own."""
    gold, share = batch.target_in, config.rate(progress)
    if not share:
        return gold
    with torch.no_grad():
        logits = model(batch.source, gold)
    own = torch.cat(
        [gold[:, :1], sample_predictions(logits[:, :-1], config.sample)], dim=1
    )  # (B, 1) + (B, T - 1) -> (B, T)
    replaced = (torch.rand(gold.shape, device=gold.device) < share) & (gold != PAD)
    return own.where(replaced, gold)


def sample_predictions(logits: Tensor, draw: bool) -> Tensor:
    """The next tokens, (B, T, V) -> (B, T): drawn, or the best ones. As in decoding, padding and start are none."""
    logits = logits.float()
    logits[..., :EOS] = -torch.inf
    if not draw:
        return logits.argmax(-1)
    # The largest of logits with Gumbel noise is a draw; `multinomial` would need all probabilities in rows first.
    return (logits - torch.empty_like(logits).exponential_().log_()).argmax(-1)
