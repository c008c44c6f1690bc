"""Scheduled sampling (Bengio et al. 2015) in two passes (Mihaylova and Martins 2019).

The first pass reads the gold tokens, without gradient, and guesses the next ones; some of the guesses take the places
of the gold tokens in what the second pass reads. Both passes are parallel, so one way serves recurrent networks and
Transformers. DISCREPANCY: Bengio et al. go token by token, where a guess follows earlier guesses; here it follows gold.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.config.teaching import ScheduledSampling
from headwise.data.collate import PairBatch
from headwise.text import EOS, PAD


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
