"""Hard and local attention: to one key, or to a window of keys, instead of all.

Hard attention: Xu et al. 2015, "Show, Attend and Tell", section 4.1. Local attention: Luong et al. 2015, section 3.2;
its monotonic form is a `Window` around the position of the query.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.attention.score_mods import AttentionInputs, ScoreMod, ScoreModConfig, Window
from headwise.blocks.attention.scores import init_head_matrices
from headwise.blocks.part import BuildContext


class HardAttention(ScoreMod):
    """Hard attention: one key instead of a mean of all, sampled by attention weight in training, the one with the
    largest weight in evaluation.

    A sample has no gradient, so its log-probability (B, H, Tq) goes to the side outputs as "hard", for
    `reinforce_loss`. The expectation of the output is that of soft attention.
    """

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        if not self.training:
            return make_one_hot(weights, weights.argmax(-1, keepdim=True))
        # argmax of weight / Exponential(1) is a sample by weight (Gumbel-max); unlike multinomial, it takes rows of
        # zeros.
        noise = torch.empty_like(weights).exponential_()
        chosen = (weights.detach() / noise).argmax(-1, keepdim=True)
        tiny = torch.finfo(weights.dtype).tiny
        picked, total = weights.gather(-1, chosen).squeeze(-1), weights.sum(-1)
        inputs.side.add("hard", inputs.path, picked.clamp(min=tiny).log() - total.clamp(min=tiny).log())
        return make_one_hot(weights, chosen)


def make_one_hot(weights: Tensor, chosen: Tensor) -> Tensor:
    """1 at the chosen key (..., 1) of each query; zeros for a query whose keys are all masked."""
    weights = weights.detach()
    return torch.zeros_like(weights).scatter(-1, chosen, (weights.gather(-1, chosen) > 0).to(weights.dtype))


def compute_baseline(losses: Tensor, counts: Tensor) -> Tensor:
    """A leave-one-out baseline of each row's loss (B,): its number of tokens times the mean loss per token of the
    others.

    It does not depend on the row's own samples, so it does not bias the gradient; it is computed from the batch alone,
    so checkpoints need not store it.

    >>> compute_baseline(torch.tensor([2.0, 4.0, 9.0]), torch.tensor([1, 2, 3]))
    tensor([2.6000, 5.5000, 6.0000])
    """
    losses = losses.detach()
    return counts * (losses.sum() - losses) / (counts.sum() - counts).clamp(min=1)


def reinforce_loss(losses: Tensor, log_probs: Iterable[Tensor], baseline: Tensor) -> Tensor:
    """REINFORCE: losses of rows (B,) whose gradient is an unbiased estimate for the expectation over hard attention,
    grad L + (L - b) grad log p(samples), Xu et al. eq. 12 without its entropy term.

    The loss of a row is the reward of all its samples, so `log_probs`, each (B, H, Tq), may come from any layers.
    """
    log_prob = sum((p.flatten(1).sum(-1) for p in log_probs), torch.zeros_like(losses))
    return losses + (losses.detach() - baseline) * (log_prob - log_prob.detach())


class LocalAttention(ScoreMod):
    """Predictive local attention: a window around p = S sigmoid(v tanh(W q)), keys beyond p +- half_window masked, and
    weights times exp(-(s - p)^2 / (2 (half_window/2)^2)). S is the number of real keys, so it cannot be causal."""

    needs_key_count = True
    reads = frozenset(("queries",))

    def __init__(self, heads: int, head_width: int, half_window: int = 10):
        super().__init__()
        self.half_window = half_window
        self.inner = init_head_matrices(heads, head_width, head_width)
        self.outer = init_head_matrices(heads, head_width, 1)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        return scores.masked_fill(self._compute_offset(inputs).abs() > self.half_window, torch.finfo(scores.dtype).min)

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        offset = self._compute_offset(inputs)
        gaussian = torch.exp(-2 * (offset / self.half_window) ** 2)
        return weights * gaussian.masked_fill(offset.abs() > self.half_window, 0.0)

    def _compute_offset(self, inputs: AttentionInputs) -> Tensor:
        """s - p for each query and key: (B, H, Tq, Tk)."""
        layout = inputs.layout
        center = ((inputs.q @ self.inner).tanh() @ self.outer).sigmoid()  # in [0, 1]: (B, H, Tq, D) -> (B, H, Tq, 1)
        length: int | Tensor = layout.keys
        if layout.keep is not None:
            length = layout.keep.sum(-1)[:, None, None, None]  # (B, Tk) -> (B,) -> (B, 1, 1, 1)
        return torch.arange(layout.keys, device=center.device) - length * center


class HardAttentionConfig(ScoreModConfig):
    """Hard attention to one key for each query: sampled in training, that of the largest weight in evaluation"""

    kind: Literal["hard"] = "hard"

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        return HardAttention()


class LocalAttentionConfig(ScoreModConfig):
    """Luong's local attention: a window around the position of the query, or around a predicted one"""

    kind: Literal["local"] = "local"
    mode: Literal["monotonic", "predictive"] = "monotonic"
    half_window: int = Field(10, ge=1)

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        if self.mode == "monotonic":
            return Window(self.half_window, self.half_window)
        return LocalAttention(build_ctx.heads, head_width, self.half_window)
