"""Branched attention of the Weighted Transformer (Ahmed et al. 2017, "Weighted Transformer Network for Machine
Translation"): the heads are branches, each through the same feed-forward network, with learned weights.

A layer has no other feed-forward network. As in Narang et al. 2021, self-attention and cross-attention are branched.

DISCREPANCY: the paper and the code of Narang et al. project the weights to the simplex after each update; here they are
the softmax of free parameters, which is on the simplex at any time, and equal at the start.

Letters: B rows, T length, C width, H heads, D head_width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import Attention, AttentionConfig
from headwise.blocks.feedforward import Activation, FeedForward
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Stream


class BranchWeights(nn.Module):
    """The weights of H branches, softmax(logits): they are positive, and their sum is 1. In training they are frozen
    when the share `freeze_at` of the budget is spent (`train/learner.py`)."""

    def __init__(self, heads: int, freeze_at: float = 1.0):
        super().__init__()
        self.freeze_at = freeze_at
        self.logits = nn.Parameter(torch.zeros(heads))

    def forward(self) -> Tensor:
        return self.logits.softmax(0)

    def extra_repr(self) -> str:
        return f"freeze_at={self.freeze_at}"


class BranchedAttention(Attention):
    """Branched attention: sum_i α_i FFN(κ_i head_i W_O,i) with κ and α on the simplex. The columns of
    `out` are those of the matrices W_O,i."""

    def __init__(self, width: int, heads: int, *, feedforward: FeedForward, freeze_at: float = 1.0, **settings: Any):
        super().__init__(width, heads, **{**settings, "bias": False})
        self.feedforward = feedforward
        self.kappa, self.alpha = BranchWeights(heads, freeze_at), BranchWeights(heads, freeze_at)

    def project_heads(self, heads: Tensor, stream: Stream) -> Tensor:
        """The weighted branches: (B, H, T, D) -> (B, T, C)."""
        weights = self.out.weight.unflatten(1, heads.shape[1::2])  # (C, HD) -> (C, H, D)
        branches = heads @ (self.kappa().view(-1, 1, 1) * weights.permute(1, 2, 0))  # (B, H, T, D) -> (B, H, T, C)
        # The weights of the sum are applied as a product: it does not store the outputs of all branches twice.
        return torch.einsum("bhtc,h->btc", self.feedforward(branches.flatten(0, 1)).view_as(branches), self.alpha())


class BranchedConfig(AttentionConfig):
    """Branched attention of the Weighted Transformer, in the place of attention and feed-forward network. 0 leaves a
    number to the model."""

    kind: Literal["branched"] = "branched"  # type: ignore[assignment]
    hidden: int = Field(0, ge=0)  # of the feed-forward network that the branches share
    activation: Activation | Literal[""] = ""
    freeze_at: float = Field(0.9, gt=0, le=1)  # share of the training budget after which branch weights are frozen

    def build_attention(self, build_ctx: BuildContext, heads: int, **settings: Any) -> Attention:
        feedforward = FeedForward(
            build_ctx.width,
            self.hidden or build_ctx.hidden,
            self.activation or build_ctx.activation,
            build_ctx.mlp_bias,
            build_ctx.hidden_dropout,
        )
        settings |= {"feedforward": feedforward, "freeze_at": self.freeze_at}
        return BranchedAttention(build_ctx.width, heads, **settings)
