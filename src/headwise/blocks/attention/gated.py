"""Gated attention (Jumper et al. 2021, supplement, Algorithm 7): a gate on the outputs of the heads.

Letters: B rows, T length, C width, H heads, D head_width.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from headwise.blocks.attention.multihead import Attention, AttentionConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Stream


class GatedAttention(Attention):
    """Gated attention: W_O (sigmoid(W_g x + b_g) * heads), with a gate of each channel of each head from the token that
    asks."""

    def __init__(self, width: int, heads: int, **settings: Any):
        super().__init__(width, heads, **settings)
        self.gate = nn.Linear(width, self.out.in_features)

    @property
    def input_linear(self) -> nn.Module | None:
        return None  # the gate reads the stream, too

    def project_heads(self, heads: Tensor, stream: Stream) -> Tensor:
        rows, _, queries, _ = heads.shape
        merged = heads.transpose(1, 2).flatten(2)  # (B, H, T, D) -> (B, T, HD)
        # Where beams are folded into the queries of their source, they have their own gates: (B*K, T) -> (B, K*T)
        x = stream.x if rows < stream.x.shape[0] else stream.x[:, :queries]
        return self.out(self.gate(x).sigmoid().reshape(rows, queries, -1) * merged)


class GatedAttentionConfig(AttentionConfig):
    """Multi-head softmax attention with a sigmoid gate on the outputs of the heads. 0 leaves a number to the model."""

    kind: Literal["gated"] = "gated"  # type: ignore[assignment]

    def build_attention(self, build_ctx: BuildContext, heads: int, **settings: Any) -> Attention:
        return GatedAttention(build_ctx.width, heads, **settings)
