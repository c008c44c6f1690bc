"""Talking-heads attention (Shazeer et al. 2020), as in CaiT (Touvron et al. 2021, section 4).

Letters: B rows, H heads, Tq queries, Tk keys.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionInputs, ScoreMod, ScoreModConfig
from headwise.blocks.part import BuildContext


class TalkingHeads(ScoreMod):
    """Talking heads: two H x H linear maps across heads, one of the scores before the softmax and one of the weights
    after it.

    DISCREPANCY: the paper's maps have no biases, those of the released CaiT have. A bias would give weight to masked
    keys, so the mask is applied again.
    """

    def __init__(self, heads: int):
        super().__init__()
        self.before = nn.Linear(heads, heads)
        self.after = nn.Linear(heads, heads)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        return mix_heads(self.before, scores)

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        mask = inputs.build_mask()
        weights = mix_heads(self.after, weights)
        return weights if mask is None else weights.masked_fill(mask, 0.0)


def mix_heads(linear: nn.Linear, x: Tensor) -> Tensor:
    """Apply a linear map across heads: (B, H, Tq, Tk) -> (B, H, Tq, Tk)."""
    weight = linear.weight.expand(x.shape[0], -1, -1)  # (H, H) -> (B, H, H)
    return torch.baddbmm(linear.bias.unsqueeze(-1), weight, x.flatten(2)).view_as(x)  # @ (B, H, Tq * Tk)


class TalkingConfig(ScoreModConfig):
    """Talking heads: linear maps across heads, of scores before the softmax and of weights after it"""

    kind: Literal["talking"] = "talking"

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        return TalkingHeads(build_ctx.heads)
