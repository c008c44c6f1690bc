"""Looks at one key, or at a window around one, instead of at all.

Hard attention: Xu et al. 2015, "Show, Attend and Tell", section 4.1. Local attention: Luong et al. 2015, section 3.2;
its monotonic form is a `Window` around the query's own position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.attention.score_mods import AttentionInputs, ScoreMod, ScoreModConfig, Window
from headwise.blocks.attention.scores import matrices
from headwise.blocks.part import BuildContext


class HardAttention(ScoreMod):
    """Hard attention: one key instead of a mean of all: sampled by its weight in training, the heaviest one in
    evaluation.

    The choice has no gradient, so the log-probability of each, (B, H, Tq), goes to the side outputs as "hard",
    for `reinforce_loss`. Over samples the mean of its output is that of soft attention.
    """

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        if not self.training:
            return one_hot(weights, weights.argmax(-1, keepdim=True))
        # The first of racing exponential clocks is a sample by weight; unlike multinomial, it takes rows of zeros.
        clocks = torch.empty_like(weights).exponential_()
        chosen = (weights.detach() / clocks).argmax(-1, keepdim=True)
        tiny = torch.finfo(weights.dtype).tiny
        picked, total = weights.gather(-1, chosen).squeeze(-1), weights.sum(-1)
        inputs.side.add("hard", inputs.path, picked.clamp(min=tiny).log() - total.clamp(min=tiny).log())
        return one_hot(weights, chosen)


def one_hot(weights: Tensor, chosen: Tensor) -> Tensor:
    """1 at the chosen key (..., 1) of each row; nothing in a row that sees nothing."""
    weights = weights.detach()
    return torch.zeros_like(weights).scatter(-1, chosen, (weights.gather(-1, chosen) > 0).to(weights.dtype))


def others(losses: Tensor, counts: Tensor) -> Tensor:
    """A baseline for each row's loss (B,): its tokens times what the other rows lose on a token.

    It knows nothing of the row's own choices, so it does not bias the gradient; and as it is made from the batch at
    hand, there is nothing to save with a checkpoint.

    >>> others(torch.tensor([2.0, 4.0, 9.0]), torch.tensor([1, 2, 3]))
    tensor([2.6000, 5.5000, 6.0000])
    """
    losses = losses.detach()
    return counts * (losses.sum() - losses) / (counts.sum() - counts).clamp(min=1)


def reinforce_loss(losses: Tensor, log_probs: Iterable[Tensor], baseline: Tensor) -> Tensor:
    """The rows' losses (B,) with a gradient that is an unbiased estimate for the expectation over hard choices:
    grad L + (L - b) grad log p(choices), Xu et al. eq. 12 without its entropy term.

    Every choice, each (B, H, Tq), answers for the loss of the whole row, so choices of any layer may be given.
    """
    chosen = sum((p.flatten(1).sum(-1) for p in log_probs), torch.zeros_like(losses))
    return losses + (losses.detach() - baseline) * (chosen - chosen.detach())


class LocalAttention(ScoreMod):
    """A window around a predicted place: p = S sigmoid(v tanh(W q)), keys beyond p +- reach hidden, and weights times
    exp(-(s - p)^2 / (2 (reach/2)^2)). S is the number of real keys, so it looks at a whole source, not at a past."""

    needs_key_count = True
    reads = frozenset(("queries",))

    def __init__(self, heads: int, head_width: int, reach: int = 10):
        super().__init__()
        self.reach = reach
        self.inner = matrices(heads, head_width, head_width)
        self.outer = matrices(heads, head_width, 1)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        return scores.masked_fill(self._offset(inputs).abs() > self.reach, torch.finfo(scores.dtype).min)

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        offset = self._offset(inputs)
        bell = torch.exp(-2 * (offset / self.reach) ** 2)
        return weights * bell.masked_fill(offset.abs() > self.reach, 0.0)

    def _offset(self, inputs: AttentionInputs) -> Tensor:
        """s - p for each query and key: (B, H, Tq, Tk)."""
        layout = inputs.layout
        share = ((inputs.q @ self.inner).tanh() @ self.outer).sigmoid()  # (B, H, Tq, D) -> (B, H, Tq, 1)
        length = (
            layout.keys if layout.keep is None else layout.keep.sum(-1)[:, None, None, None]
        )  # (B,) -> (B, 1, 1, 1)
        return torch.arange(layout.keys, device=share.device) - length * share


class HardAttentionConfig(ScoreModConfig):
    """One key for each query: sampled in training, the heaviest in evaluation."""

    kind: Literal["hard"] = "hard"

    def build(self, site: BuildContext, head_width: int) -> ScoreMod:
        return HardAttention()


class LocalAttentionConfig(ScoreModConfig):
    """Luong's windows of a source: around the target's own position, or around a predicted place."""

    kind: Literal["local"] = "local"
    mode: Literal["monotonic", "predictive"] = "monotonic"
    half_window: int = Field(10, ge=1)

    def build(self, site: BuildContext, head_width: int) -> ScoreMod:
        if self.mode == "monotonic":
            return Window(self.half_window, self.half_window)
        return LocalAttention(site.heads, head_width, self.half_window)
