"""Perceiver: an array of latents cross-attends to long inputs (Jaegle et al. 2021); Perceiver IO: output queries
cross-attend to the latents (Jaegle et al. 2022).

The cost is linear in the input's length: N latents attend to M inputs, then to each other, O(M N + L N^2); M queries
attend to N latents. Inputs of any kind will do that have their positions in their channels.

Letters: B rows, M inputs, N latents, H heads, D head_width, V value_width, C width of inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import Attention, CrossProjection, SelfProjection
from headwise.blocks.attention.score_mods import Causal, Score, ScoreMod
from headwise.blocks.mixers.qkv_mixer import QKVMixerConfig
from headwise.blocks.norm import LayerNorm
from headwise.blocks.part import BuildContext
from headwise.blocks.stack import Embedding, Encoder, Stack, build_keep_mask
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError


def split_heads(fused: Tensor, heads: int, rows: Sequence[int]) -> tuple[Tensor, ...]:
    """Split the rows of a fused projection into heads: (B, T, sum of rows) -> (B, H, T, row / H) each."""
    return tuple(part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in fused.split(tuple(rows), -1))


class PerceiverSelfProjection(SelfProjection):
    """Fused QKV projection with values of another width than queries and keys."""

    def __init__(self, width: int, heads: int, head_width: int, value_width: int, bias: bool = True):
        self.value_width = value_width
        super().__init__(width, heads, head_width, bias)

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(self.heads * width for width in (self.head_width, self.head_width, self.value_width))

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        return split_heads(fused, self.heads, self.rows)


class PerceiverCrossProjection(CrossProjection):
    """Keys and values from a memory, with a layer norm of the memory, as inputs are not outputs of a layer."""

    def __init__(
        self, width: int, heads: int, head_width: int, value_width: int, bias: bool, memory_width: int, norm: nn.Module
    ):
        super().__init__(width, heads, head_width, bias, memory_width)
        self.rows = (heads * head_width, heads * value_width)
        self.project = nn.Linear(memory_width, sum(self.rows), bias)
        self.norm = norm

    def project_memory(self, memory: Stream, score_mods: Sequence[ScoreMod], score: Score) -> tuple[Tensor, Tensor]:
        k, v = split_heads(self.project(self.norm(memory.x)), self.heads, self.rows)
        return score.project_key(k), v


class PerceiverAttention(Attention):
    """softmax(Q K^T / sqrt(D)) V with `value_width` channels of values per head."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        value_width: int,
        *,
        qkv: PerceiverSelfProjection | PerceiverCrossProjection,
        score_mods: Sequence[ScoreMod] = (),
        dropout: float = 0.0,
        bias: bool = True,
    ):
        if value_width != head_width and any("add_values" in mod.hooks for mod in score_mods):
            raise UserError("positions: shaw adds to values as wide as keys; use rotary, t5, alibi or sinusoid")
        super().__init__(
            width, heads, qkv=qkv, head_width=head_width, score_mods=score_mods, dropout=dropout, bias=bias
        )
        self.out = nn.Linear(heads * value_width, width, bias)


class ReplaceStream(nn.Module):
    """Instead of a residual add: the branch replaces the stream."""

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return branch


class LatentOutputs(nn.Module):
    """The outputs are the latents: N vectors, to be pooled."""

    def forward(self, inputs: Stream, latents: Stream, ctx: Context) -> Stream:
        return latents


class OutputQueries(nn.Module):
    """Output queries: a query for each input position, its position vector, cross-attends to the latents (Perceiver IO,
    section 3.2)."""

    def __init__(self, width: int, positions: nn.Module, layer: nn.Module):
        super().__init__()
        self.width, self.positions, self.layer = width, positions, layer

    def forward(self, inputs: Stream, latents: Stream, ctx: Context) -> Stream:
        rows, length, _ = inputs.x.shape
        zeros = Stream.of(inputs.x.new_zeros(1, length, self.width), inputs.keep)
        queries = self.positions(zeros.x, zeros.pos, 0).expand(rows, -1, -1)  # (1, M, C) -> (B, M, C)
        return self.layer(zeros.with_x(queries), with_memory(ctx, latents).at("outputs"))


class LatentEncoder(Encoder):
    """Perceiver encoder: ids -> latents -> `outputs`. The stack's layers cross-attend to the inputs or mix the latents;
    layers that its order repeats share their weights."""

    def __init__(
        self,
        embed: Embedding,
        latents: int,
        width: int,
        stack: Stack,
        outputs: nn.Module,
        pad: int = 0,
    ):
        super().__init__(embed, stack, pad)
        self.latents = nn.Parameter(0.02 * torch.randn(latents, width))
        self.outputs = outputs

    def forward(self, ids: Tensor, ctx: Context) -> Stream:
        inputs = self.embed(ids, build_keep_mask(ids, self.pad))
        return self.outputs(inputs, self.perceive(inputs, ctx), ctx)

    def perceive(self, inputs: Stream, ctx: Context) -> Stream:
        """The latents after cross-attention to inputs that have their positions in their channels."""
        latents = Stream.of(self.latents.repeat(inputs.x.shape[0], 1, 1))  # (N, width) -> (B, N, width)
        return self.stack(latents, with_memory(ctx, inputs).at("encoder"))


def with_memory(ctx: Context, memory: Stream) -> Context:
    """The context with another memory, and without the shared masks of the last one."""
    return replace(ctx, memory={"encoder": memory}, shared={})


class PerceiverAttentionConfig(QKVMixerConfig):
    """Perceiver attention: softmax attention with `value_width` channels of values per head; 0: width / heads."""

    kind: Literal["perceiver"] = "perceiver"
    attend_to: Literal["self", "memory"] = "self"
    value_width: int = Field(0, ge=0)

    def build(self, build_ctx: BuildContext) -> nn.Module:
        arguments = self.resolve_arguments(build_ctx)
        heads, head_width, bias, score_mods = (
            arguments["heads"],
            arguments["head_width"],
            arguments["bias"],
            arguments["score_mods"],
        )
        if not self.value_width and build_ctx.width % heads:
            raise UserError(f"value_width: a width of {build_ctx.width} cannot be divided among {heads} heads; set it")
        shape = (build_ctx.width, heads, head_width, self.value_width or build_ctx.width // heads)
        qkv: nn.Module
        if self.attend_to == "memory":
            if not build_ctx.memory_width:
                raise UserError("attend_to: there is no memory in this stack; use attend_to = 'self'")
            qkv, score_mods = (
                PerceiverCrossProjection(*shape, bias, build_ctx.memory_width, LayerNorm(build_ctx.memory_width)),
                (),
            )
        else:
            qkv, score_mods = (
                PerceiverSelfProjection(*shape, bias),
                (*score_mods, *((Causal(),) if build_ctx.causal else ())),
            )
        return PerceiverAttention(
            *shape, qkv=qkv, score_mods=score_mods, bias=bias, dropout=build_ctx.attention_dropout
        )
