"""LeViT's attention (Graham et al. 2021, "LeViT: a Vision Transformer in ConvNet's Clothing for Faster Inference"):
batch norm in its projections, values wider than keys, a learned bias for each offset on the grid instead of positions,
and a subsampling form that keeps a quarter of the tokens.

Letters: B images, T tokens, h x w grid, H heads, D head_width, V value_width, C width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.kernels import plain
from headwise.blocks.attention.score_mods import AttentionLayout, Score, ScoreMod
from headwise.blocks.batchnorm import LinearNorm
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.images import count_class_tokens
from headwise.blocks.latents import PerceiverAttention, PerceiverCrossProjection, PerceiverSelfProjection, with_memory
from headwise.blocks.mixers.qkv_mixer import QKVMixerConfig
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError

LeViTActivation = Literal["hard_swish", "swish"]
LEVIT_ACTIVATIONS: dict[str, type[nn.Module]] = {"hard_swish": nn.Hardswish, "swish": nn.SiLU}


class OffsetBias(ScoreMod):
    """Attention bias of LeViT: a learned score for each head and each absolute offset (|dy|, |dx|) on the grid (section
    4.2). Positions are indices of the grid, row by row."""

    needs_positions = True

    def __init__(self, heads: int, grid: tuple[int, int]):
        super().__init__()
        self.columns = grid[1]
        self.scores = nn.Parameter(torch.zeros(heads, grid[0] * grid[1]))

    def bias(self, layout: AttentionLayout) -> Tensor:
        assert layout.query_pos is not None and layout.key_pos is not None
        q, k, columns = layout.query_pos.unsqueeze(-1), layout.key_pos, self.columns
        offset = (q // columns - k // columns).abs() * columns + (q % columns - k % columns).abs()
        return self.scores[:, offset]  # (H, hw) -> (H, Tq, Tk)


class BatchNormSelfProjection(PerceiverSelfProjection):
    """Fused QKV projection with one batch norm; rows are ordered by head."""

    def __init__(self, width: int, heads: int, head_width: int, value_width: int):
        super().__init__(width, heads, head_width, value_width, bias=False)
        self.project = LinearNorm(width, sum(self.rows))  # type: ignore[assignment]

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        return split_by_head(fused, self.heads, (self.head_width, self.head_width, self.value_width))


class BatchNormCrossProjection(PerceiverCrossProjection):
    """Queries from the stream, keys and values from a memory, each with a batch norm."""

    def __init__(self, width: int, heads: int, head_width: int, value_width: int):
        super().__init__(width, heads, head_width, value_width, False, width, nn.Identity())
        self.value_width = value_width
        self.query = LinearNorm(width, heads * head_width)  # type: ignore[assignment]
        self.project = LinearNorm(width, sum(self.rows))  # type: ignore[assignment]

    def project_memory(self, memory: Stream, score_mods: Sequence[ScoreMod], score: Score) -> tuple[Tensor, Tensor]:
        k, v = split_by_head(self.project(memory.x), self.heads, (self.head_width, self.value_width))
        return score.project_key(k), v


def split_by_head(fused: Tensor, heads: int, widths: Sequence[int]) -> tuple[Tensor, ...]:
    """Split rows that are ordered by head: (B, T, H * sum of widths) -> (B, H, T, width) for each width."""
    return fused.unflatten(-1, (heads, -1)).transpose(1, 2).split(tuple(widths), -1)


class LeViTAttention(PerceiverAttention):
    """LeViT attention: softmax attention with batch norm in all projections and an activation, hard swish, before the
    last (section 4.2). `gain` is the initial gain of the last norm."""

    def __init__(
        self,
        qkv: BatchNormSelfProjection | BatchNormCrossProjection,
        outputs: int,
        score_mods: Sequence[ScoreMod] = (),
        gain: float = 0.0,
        activation: LeViTActivation = "hard_swish",
    ):
        super().__init__(
            outputs, qkv.heads, qkv.head_width, qkv.value_width, qkv=qkv, score_mods=score_mods, bias=False
        )
        self.output_width = outputs
        # Torch's fused kernel takes no values wider than keys, and its fallback is slower than this.
        self.kernel = plain
        last = LinearNorm(qkv.heads * qkv.value_width, outputs, gain)
        self.out = nn.Sequential(LEVIT_ACTIVATIONS[activation](), last)  # type: ignore[assignment]


class LeViTFeedForward(FeedForward):
    """norm(W_2 activation(norm(W_1 x))), with hard swish (section 4.2)."""

    def __init__(self, width: int, hidden: int, activation: LeViTActivation = "hard_swish"):
        super().__init__(width, hidden, bias=False)
        self.activation = LEVIT_ACTIVATIONS[activation]()
        self.inner = LinearNorm(width, hidden)  # type: ignore[assignment]
        self.outer = LinearNorm(hidden, width, gain=0.0)  # type: ignore[assignment]


class SubsampleAttention(nn.Module):
    """Subsampling attention: every other token of every other row attends to all tokens (section 4.2, figure 5 right).
    A layer that halves the grid and changes the width, without a residual."""

    def __init__(self, attention: LeViTAttention):
        super().__init__()
        self.attention = attention

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        queries, grid = subsample(stream)
        x = self.attention(queries, with_memory(ctx, stream))
        return replace(Stream.of(x), grid=grid)


def subsample(stream: Stream) -> tuple[Stream, tuple[int, int]]:
    """Every other token of every other row, at its position, and the new grid."""
    if class_tokens := count_class_tokens(stream):
        raise UserError(
            f"class_tokens: {class_tokens} tokens before the grid cannot be subsampled; set class_tokens = 0"
        )
    assert stream.grid is not None
    # (B, hw, C) -> (B, h, w, C) -> (B, h/2, w/2, C) -> (B, hw/4, C)
    x = stream.x.unflatten(1, stream.grid)[:, ::2, ::2]
    pos = stream.pos.unflatten(0, stream.grid)[::2, ::2].flatten()
    return Stream(x.flatten(1, 2), pos), (x.shape[1], x.shape[2])


class LeViTAttentionConfig(QKVMixerConfig):
    """LeViT attention (Graham et al. 2021): values are `value_expand` times as wide as keys."""

    kind: Literal["levit"] = "levit"
    value_expand: int = Field(2, ge=1)
    activation: LeViTActivation = "hard_swish"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        arguments = self.resolve_arguments(build_ctx)
        head_width = arguments["head_width"]
        qkv = BatchNormSelfProjection(build_ctx.width, arguments["heads"], head_width, self.value_expand * head_width)
        return LeViTAttention(qkv, build_ctx.width, arguments["score_mods"], activation=self.activation)


class LeViTMlpConfig(PartConfig):
    """LeViT's feed-forward network, of the model's `hidden` width, with batch norm and hard swish or swish."""

    kind: Literal["levit_mlp"] = "levit_mlp"
    activation: LeViTActivation = "hard_swish"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return LeViTFeedForward(build_ctx.width, build_ctx.hidden, self.activation)
