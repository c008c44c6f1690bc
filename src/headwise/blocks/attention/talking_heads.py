"""Talking heads (Shazeer et al. 2020, "Talking-Heads Attention"), as CaiT has them (Touvron et al. 2021, section 4).

Letters: B rows, H heads, Tq queries, Tk keys.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionInputs, ScoreMod, ScoreModConfig
from headwise.blocks.part import BuildContext


class TalkingHeads(ScoreMod):
    """Talking heads: two H x H maps between the heads, one of the scores before the softmax and one of the weights
    after it.

    DISCREPANCY: the paper's maps have no biases, those of the released CaiT have. A bias would give weight to hidden
    keys, so the mask is laid on again.
    """

    def __init__(self, heads: int):
        super().__init__()
        self.before = nn.Linear(heads, heads)
        self.after = nn.Linear(heads, heads)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        return among_heads(self.before, scores)

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        hidden = inputs.mask()
        mixed = among_heads(self.after, weights)
        return mixed if hidden is None else mixed.masked_fill(hidden, 0.0)


def among_heads(linear: nn.Linear, x: Tensor) -> Tensor:
    """A linear map along the heads: (B, H, Tq, Tk) -> the same."""
    weight = linear.weight.expand(len(x), -1, -1)  # (H, H) -> (B, H, H)
    return torch.baddbmm(linear.bias.unsqueeze(-1), weight, x.flatten(2)).view_as(x)  # @ (B, H, Tq * Tk)


class TalkingConfig(ScoreModConfig):
    """Heads exchange their scores before the softmax and their weights after it."""

    kind: Literal["talking"] = "talking"

    def build(self, site: BuildContext, head_width: int) -> ScoreMod:
        return TalkingHeads(site.heads)
