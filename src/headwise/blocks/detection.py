"""Attention of DETR (Carion et al. 2020, "End-to-End Object Detection with Transformers"): positions are added at every
layer to the inputs of queries and keys, not of values.

Positions are 2-D sinusoids of pixels and a learned vector for each object query. A score mod cannot add them: `edit_qk`
acts on projected heads and does not know the projection. So it is part of `qkv`, which owns the projections:
W (x + p) + b = (W x + b) + W p, where the second product has one row only, as images of one size share their positions.

Letters: B images, C width, H x W pixels, h x w grid, T = h * w tokens, Q object queries, K classes, L decoder layers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import QKV, AttentionConfig, CrossProjection, SelfProjection
from headwise.blocks.attention.score_mods import Score, ScoreMod
from headwise.blocks.images import count_class_tokens
from headwise.blocks.latents import split_heads
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError


class ImagePositions(nn.Module, ABC):
    """Position vectors of a stream, computed once for all layers of a call: (B, T, C), or (1, T, C) for all rows."""

    def forward(self, stream: Stream, ctx: Context) -> Tensor:
        key = ("positions", id(self), stream.x.shape[1], stream.grid, id(stream.keep))
        if key not in ctx.shared:  # keep is stored as well, so that its id stays valid
            ctx.shared[key] = (self.compute_vectors(stream), stream.keep)
        vectors: Tensor = ctx.shared[key][0]
        return vectors

    @abstractmethod
    def compute_vectors(self, stream: Stream) -> Tensor:
        """(B or 1, T, C)."""


class SinePositions(ImagePositions):
    """2-D sinusoidal positions: the row in one half of the channels and the column in the other, both counted from 1
    and scaled so that an image, without its padding, ends at 2 pi (Carion et al. 2020, appendix A). Zeros for class
    tokens."""

    def __init__(self, width: int):
        super().__init__()
        if width % 4:
            raise UserError(
                f"width: 2-D sinusoids need pairs of channels for rows and for columns, not {width} channels; "
                "choose a multiple of 4"
            )
        self.width = width

    def compute_vectors(self, stream: Stream) -> Tensor:
        class_tokens = count_class_tokens(stream)
        assert stream.grid is not None
        real = torch.ones_like(stream.x[:1, :, 0]) if stream.keep is None else stream.keep
        cells = real[:, class_tokens:].double().unflatten(1, stream.grid)  # (B, T) -> (B, h, w)
        halves = [build_sinusoids(_to_angles(cells.cumsum(axis), axis), self.width // 2) for axis in (1, 2)]
        positions = torch.cat(halves, dim=-1).flatten(1, 2)  # (B, h, w, C) -> (B, hw, C)
        return F.pad(positions, (0, 0, class_tokens, 0)).to(stream.x.dtype)


def _to_angles(count: Tensor, axis: int) -> Tensor:
    """Scale positions along an axis to 2 pi."""
    return count / (count.amax(axis, keepdim=True) + 1e-6) * (2 * math.pi)


class ObjectQueries(ImagePositions):
    """Object queries: a learned vector for each of the objects that can be predicted."""

    def __init__(self, count: int, width: int):
        super().__init__()
        self.table = nn.Embedding(count, width)

    def compute_vectors(self, stream: Stream) -> Tensor:
        return self.table(stream.pos).unsqueeze(0)  # (Q,) -> (1, Q, C)


class PositionedSelfProjection(SelfProjection):
    """q = W_q (x + p), k = W_k (x + p), v = W_v x."""

    joins = False  # positions are column indices

    def __init__(self, width: int, heads: int, head_width: int, bias: bool, places: ImagePositions):
        super().__init__(width, heads, head_width, bias)
        self.places = places

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        q, k, v, layout = super().forward(stream, ctx, score_mods, score)
        q_positions, k_positions = project_positions(self, self.places(stream, ctx), self.rows[:2])
        return q + q_positions, k + k_positions, v, layout


class PositionedCrossProjection(CrossProjection):
    """q = W_q (x + p), k = W_k (m + p'), v = W_v m, with the positions p of the queries and p' of the memory."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        bias: bool,
        memory_width: int,
        places: ImagePositions,
        memory_places: ImagePositions,
    ):
        super().__init__(width, heads, head_width, bias, memory_width)
        self.places, self.memory_places = places, memory_places

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        queries = stream.with_x(stream.x + self.places(stream, ctx))
        q, k, v, layout = super().forward(queries, ctx, score_mods, score)
        positions = self.memory_places(ctx.memory[self.name], ctx)
        (k_positions,) = project_positions(self, positions, (self.heads * self.head_width,))
        return q, k + k_positions, v, layout


def project_positions(
    qkv: SelfProjection | CrossProjection, positions: Tensor, rows: Sequence[int]
) -> tuple[Tensor, ...]:
    """W p of the first projections of a fused matrix, which have so many rows: (B, T, C) -> (B, H, T, D) each."""
    return split_heads(F.linear(positions, qkv.project.weight[: sum(rows)]), qkv.heads, rows)


POSITIONS, MEMORY_POSITIONS = "positions", "memory positions"  # keys of `BuildContext.once`


class PositionedAttentionConfig(PartConfig):
    """DETR's attention: positions are added to the inputs of queries and keys, not of values (Carion et al. 2020):
    those of the stack, by default 2-D sinusoids."""

    kind: Literal["positioned"] = "positioned"
    attend_to: Literal["self", "memory"] = "self"
    heads: int = Field(0, ge=0)  # 0: the model's
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        plain = AttentionConfig(attend_to=self.attend_to, heads=self.heads, kernel=self.kernel)
        attention: Any = plain.build(replace(build_ctx, key_value_heads=0))
        if any("edit_qk" in mod.hooks for mod in attention.score_mods):
            raise UserError(
                f"{self.kind}: queries and keys have positions already; use positions that do not change them"
            )
        shape = (build_ctx.width, attention.qkv.heads, attention.qkv.head_width, build_ctx.attention_bias)
        places = build_ctx.build_once(POSITIONS, lambda: SinePositions(build_ctx.width))
        if self.attend_to == "self":
            attention.qkv = PositionedSelfProjection(*shape, places)
        else:
            memory_places = build_ctx.build_once(MEMORY_POSITIONS, lambda: SinePositions(build_ctx.memory_width))
            attention.qkv = PositionedCrossProjection(*shape, build_ctx.memory_width, places, memory_places)
        return attention
