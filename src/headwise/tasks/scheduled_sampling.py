"""Scheduled sampling (Bengio et al. 2015) in two passes (Mihaylova and Martins 2019).

The first pass reads the gold tokens, without gradient, and predicts the next ones; some predictions replace gold tokens
in the input of the second pass. Both passes are parallel, so that it works for recurrent networks and Transformers.
DISCREPANCY: Bengio et al. sample token by token, each prediction after earlier ones; here each follows gold tokens.

The share of predicted tokens is `max_rate` * (1 - e_i) with the paper's schedules e_i, the probability of a gold token.
i is per cent of the budget, so that a schedule is the same for every budget.

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

SCHEDULED_SAMPLING = Table("schedule of scheduled sampling", default="linear")


class ScheduledSampling(Config):
    """A growing rate of predicted tokens. `gold` is e_i of section 2.4."""

    kind: str
    max_rate: float = Field(0.25, ge=0, le=1)
    sample: bool = False  # draw from the model's distribution instead of taking the most probable token

    def rate(self, progress: float) -> float:
        """The probability of a predicted token when this share of the budget is spent."""
        return self.max_rate * (1 - self.gold(100 * progress))

    def gold(self, i: float) -> float:
        raise TypeError(f"{type(self).__name__} has no schedule")


@SCHEDULED_SAMPLING.add
class Never(ScheduledSampling):
    """Teacher forcing: every token is gold (Williams and Zipser 1989)."""

    kind: Literal["never"] = "never"

    def gold(self, i: float) -> float:
        return 1.0


@SCHEDULED_SAMPLING.add
class Linear(ScheduledSampling):
    """Linear decay to 0 at `until`, a share of the budget."""

    kind: Literal["linear"] = "linear"
    until: float = Field(1.0, gt=0, le=1)

    def gold(self, i: float) -> float:
        return max(0.0, 1 - i / (100 * self.until))


@SCHEDULED_SAMPLING.add
class Exponential(ScheduledSampling):
    """Exponential decay, k^i."""

    kind: Literal["exponential"] = "exponential"
    k: float = Field(0.95, gt=0, lt=1)

    def gold(self, i: float) -> float:
        return self.k**i


@SCHEDULED_SAMPLING.add
class InverseSigmoid(ScheduledSampling):
    """Inverse sigmoid decay, k / (k + exp(i / k)): a half at k ln k per cent."""

    kind: Literal["inverse-sigmoid"] = "inverse-sigmoid"
    k: float = Field(15.0, ge=1)

    def gold(self, i: float) -> float:
        return self.k / (self.k + math.exp(i / self.k))


if TYPE_CHECKING:  # to a type checker, the config of what a slot holds
    AnyScheduledSampling: TypeAlias = ScheduledSampling
else:
    AnyScheduledSampling = slot(SCHEDULED_SAMPLING)


def sample_inputs(model: nn.Module, batch: PairBatch, config: ScheduledSampling, progress: float) -> Tensor:
    """Scheduled sampling: the decoder's inputs, (B, T): gold tokens, of which a share that grows with `progress` is
    replaced by the model's predictions."""
    gold, share = batch.target_in, config.rate(progress)
    if not share:
        return gold
    with torch.no_grad():
        logits = model(batch.source, gold)
    predictions = sample_predictions(logits[:, :-1], config.sample)
    predictions = torch.cat([gold[:, :1], predictions], dim=1)  # (B, 1) + (B, T - 1) -> (B, T)
    replaced = (torch.rand(gold.shape, device=gold.device) < share) & (gold != PAD)
    return predictions.where(replaced, gold)


def sample_predictions(logits: Tensor, draw: bool) -> Tensor:
    """The next tokens, (B, T, V) -> (B, T), drawn or most probable; never padding or start, as in decoding."""
    logits = logits.float()
    logits[..., :EOS] = -torch.inf
    if not draw:
        return logits.argmax(-1)
    # Gumbel-max trick: the largest of logits with Gumbel noise is a sample; `multinomial` would need probabilities.
    return (logits - torch.empty_like(logits).exponential_().log_()).argmax(-1)
