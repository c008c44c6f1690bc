"""Finding what is in an image, all of it at once (DETR, Carion et al. 2020).

Places (2-D sinusoids of pixels, a learned vector of each object query) are added to what makes queries and keys at
every layer, never to values. No score mod can do that: `rotate` acts on heads that are projected already and does not
know by which matrix. So it is a matter of `qkv`, which owns the projections: W (x + p) + b = (W x + b) + W p, where the
second product is of one row only, as all images of one size have the same places. The attention stays the one there is.

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
    """A vector for each token of a stream, made once for all layers of a call: (B, T, C), or (1, T, C) for all rows."""

    def forward(self, stream: Stream, ctx: Context) -> Tensor:
        key = ("places", id(self), stream.x.shape[1], stream.grid, id(stream.keep))
        if key not in ctx.shared:  # with what its key names by id, so that the id stays taken
            ctx.shared[key] = (self.vectors(stream), stream.keep)
        found: Tensor = ctx.shared[key][0]
        return found

    @abstractmethod
    def vectors(self, stream: Stream) -> Tensor:
        """(B or 1, T, C)."""


class SinePositions(ImagePositions):
    """Sinusoids of the row in one half of the channels and of the column in the other, both counted from 1 and scaled
    so that an image, without its padding, ends at 2 pi (Carion et al. 2020, appendix A). Marks have no place."""

    def __init__(self, width: int):
        super().__init__()
        if width % 4:
            raise UserError(
                f"width: a row and a column need pairs of channels, {width} has no two halves of them; "
                "choose a multiple of 4"
            )
        self.width = width

    def vectors(self, stream: Stream) -> Tensor:
        class_tokens = count_class_tokens(stream)
        assert stream.grid is not None
        real = torch.ones_like(stream.x[:1, :, 0]) if stream.keep is None else stream.keep
        cells = real[:, class_tokens:].double().unflatten(1, stream.grid)  # (B, T) -> (B, h, w)
        halves = [build_sinusoids(_turned(cells.cumsum(axis), axis), self.width // 2) for axis in (1, 2)]
        places = torch.cat(halves, dim=-1).flatten(1, 2)  # (B, h, w, C) -> (B, hw, C)
        return F.pad(places, (0, 0, class_tokens, 0)).to(stream.x.dtype)


def _turned(count: Tensor, axis: int) -> Tensor:
    """Places along an axis as angles up to 2 pi."""
    return count / (count.amax(axis, keepdim=True) + 1e-6) * (2 * math.pi)


class ObjectQueries(ImagePositions):
    """Object queries: a learned vector for each slot in which an object may be told: all that tells slots apart."""

    def __init__(self, count: int, width: int):
        super().__init__()
        self.table = nn.Embedding(count, width)

    def vectors(self, stream: Stream) -> Tensor:
        return self.table(stream.pos).unsqueeze(0)  # (Q,) -> (1, Q, C)


class PositionedSelfProjection(SelfProjection):
    """q = W_q (x + p), k = W_k (x + p), v = W_v x."""

    joins = False  # places are those of the columns

    def __init__(self, width: int, heads: int, head_width: int, bias: bool, places: ImagePositions):
        super().__init__(width, heads, head_width, bias)
        self.places = places

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        q, k, v, layout = super().forward(stream, ctx, score_mods, score)
        of_q, of_k = moved(self, self.places(stream, ctx), self.rows[:2])
        return q + of_q, k + of_k, v, layout


class PositionedCrossProjection(CrossProjection):
    """q = W_q (x + p), k = W_k (m + p'), v = W_v m, with the places p of the queries and p' of the memory."""

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
        asked = stream.with_x(stream.x + self.places(stream, ctx))
        q, k, v, layout = super().forward(asked, ctx, score_mods, score)
        places = self.memory_places(ctx.memory[self.name], ctx)
        (of_k,) = moved(self, places, (self.heads * self.head_width,))
        return q, k + of_k, v, layout


def moved(qkv: SelfProjection | CrossProjection, places: Tensor, rows: Sequence[int]) -> tuple[Tensor, ...]:
    """What places add to the first of a product's projections: (B, T, C) -> (B, H, T, D) each."""
    return split_heads(F.linear(places, qkv.project.weight[: sum(rows)]), qkv.heads, rows)


POSITIONS, MEMORY_POSITIONS = "places", "memory places"  # under which a stack's site has its own


class PositionedAttentionConfig(PartConfig):
    """Softmax attention with places added to what makes queries and keys, not to values (Carion et al. 2020): the
    stack's own, or 2-D sinusoids where it has none."""

    kind: Literal["positioned"] = "positioned"
    attend_to: Literal["self", "memory"] = "self"
    heads: int = Field(0, ge=0)  # 0: the model's
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, site: BuildContext) -> nn.Module:
        plain = AttentionConfig(attend_to=self.attend_to, heads=self.heads, kernel=self.kernel)
        attention: Any = plain.build(replace(site, key_value_heads=0))
        if any("rotate" in mod.hooks for mod in attention.score_mods):
            raise UserError(f"{self.kind}: queries and keys have places already; use positions that do not turn them")
        shape = (site.width, attention.qkv.heads, attention.qkv.head_width, site.attention_bias)
        places = site.once(POSITIONS, lambda: SinePositions(site.width))
        if self.attend_to == "self":
            attention.qkv = PositionedSelfProjection(*shape, places)
        else:
            there = site.once(MEMORY_POSITIONS, lambda: SinePositions(site.memory_width))
            attention.qkv = PositionedCrossProjection(*shape, site.memory_width, places, there)
        return attention
