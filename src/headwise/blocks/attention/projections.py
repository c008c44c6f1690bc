"""QKV projections of attention variants: grouped-query and multi-query attention, shared keys and values, no bias of
keys (DeBERTa), values alone (Synthesizer), segment-level recurrence (Transformer-XL), pooled queries (Funnel). The
plain ones are in `multihead.py`.

Letters: B rows, R rows of a decoding step, T length, M tokens of earlier segments, C width, H heads, G key-value heads,
D head_width.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headwise.blocks.attention.multihead import QKV, CrossProjection, QKVStep, SelfProjection
from headwise.blocks.attention.score_mods import AttentionLayout, Score, ScoreMod
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError


class GroupedQueryProjection(SelfProjection):
    """The QKV projection of grouped-query attention (Ainslie et al. 2023): query heads share key-value heads, so that
    the KV cache is smaller; with one key-value head for all of them, multi-query attention (Shazeer 2019)."""

    groups_queries = True

    def __init__(self, width: int, heads: int, head_width: int, bias: bool = True, key_value_heads: int = 1):
        if heads % key_value_heads:
            raise UserError(
                f"key_value_heads: {heads} heads cannot share {key_value_heads} heads of keys; choose a divisor"
            )
        self.key_value_heads = key_value_heads
        super().__init__(width, heads, head_width, bias)

    @property
    def rows(self) -> tuple[int, ...]:
        heads = {"queries": self.heads, "keys": self.key_value_heads, "values": self.key_value_heads}
        return tuple(heads[role] * self.head_width for role in self.roles)

    def build_decode_step(self, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKVStep:
        group = self.heads // self.key_value_heads
        # (R, (H + 2G)D) -> (R, H, 1, D) and 2 x (R, G, 1, D)
        return self._build_decode_step(lambda fused: self.split(fused.unsqueeze(1)), ctx, score_mods, score, group)

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        # (B, T, (H + 2G)D) -> (B, T, HD) and 2 x (B, T, GD) -> (B, H, T, D) and 2 x (B, G, T, D)
        return tuple(part.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in fused.split(self.rows, -1))

    def repeat_kv(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.heads // x.shape[1], dim=1)  # (B, G, T, D) -> (B, H, T, D)


class SharedKeyValueProjection(GroupedQueryProjection):
    """The QKV projection with shared keys and values, W_k = W_v: one projection and one tensor in the KV cache, unless
    positions or the score change keys. Query heads may share heads of keys, too."""

    roles = ("queries", "values")

    def build_decode_step(self, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKVStep:
        return super().build_decode_step(ctx, score_mods, score)  # which calls this `split`

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        q, v = super().split(fused)
        return q, v, v


class NoKeyBiasProjection(SelfProjection):
    """The QKV projection with biases of queries and values and none of keys (He et al. 2021)."""

    def __init__(self, width: int, heads: int, head_width: int):
        super().__init__(width, heads, head_width, bias=False)
        self.bias = nn.Parameter(torch.zeros(2 * heads * head_width))  # of queries, then of values

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().split(fused)
        q_bias, v_bias = self.bias.view(2, self.heads, 1, self.head_width)  # (2HD,) -> 2 x (H, 1, D)
        return q + q_bias, k, v + v_bias


class SelectedProjections(GroupedQueryProjection):
    """The projection of values, and of queries and keys where a score or a score mod reads them (Synthesizer, Tay et
    al. 2020). What is not projected has no channels, (B, H, T, 0), and only says how many tokens there are."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        bias: bool = True,
        key_value_heads: int = 1,
        reads: Collection[str] = (),
    ):
        self.roles = tuple(role for role in SelfProjection.roles if role == "values" or role in reads)
        super().__init__(width, heads, head_width, bias, key_value_heads)

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        projected = dict(zip(self.roles, super().split(fused), strict=True))
        empty = projected["values"][..., :0]  # (B, G, T, 0)
        return projected.get("queries", self.repeat_kv(empty)), projected.get("keys", empty), projected["values"]


class SegmentRecurrenceProjection(SelfProjection):
    """The QKV projection of segment-level recurrence (Transformer-XL, Dai et al. 2019, section 3.2): keys and values
    also of `memory_length` tokens of earlier segments, projected with the current weights."""

    def __init__(self, width: int, heads: int, head_width: int, bias: bool = True, memory_length: int = 1):
        super().__init__(width, heads, head_width, bias)
        self.memory_length = memory_length

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        length = stream.x.shape[1]
        extended = ctx.cache.prepend_memory(ctx.path, stream)  # (B, T, C) -> (B, M + T, C)
        q, k, v, layout = super().forward(extended, ctx, score_mods, score)
        return q[:, :, -length:], k, v, replace(layout, queries=length, query_pos=stream.pos)


UNPOOLED = "unpooled"  # the memory of a layer whose inputs were pooled: the tokens before pooling


class PooledProjection(CrossProjection):
    """The QKV projection of Funnel-Transformer (Dai et al. 2020, section 2.2): in the first layer of a block, queries
    of pooled tokens attend to the tokens before pooling; in other layers it is self-attention. Queries have no bias, as
    Funnel's relative positions add theirs."""

    is_cross = False
    joins = False

    def __init__(self, width: int, heads: int, head_width: int, bias: bool = True):
        super().__init__(width, heads, head_width, bias, name=UNPOOLED)
        self.query = nn.Linear(width, heads * head_width, bias=False)

    @property
    def input_linear(self) -> nn.Module | None:
        return None  # keys and values are read through another layer

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        source = ctx.memory.get(self.name, stream)
        k, v = self.project_memory(source, score_mods, score)
        q = self.query(stream.x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, T, C) -> (B, H, T, D)
        for mod in score_mods:
            if "edit_qk" in mod.hooks:
                q = mod.edit_queries(q, stream.pos)
        layout = AttentionLayout(q.shape[2], k.shape[2], stream.pos, source.pos, source.keep)
        return q, k, v, replace(layout, query_types=stream.token_types, key_types=source.token_types)


def build_self_projection(
    width: int,
    heads: int,
    head_width: int,
    bias: bool,
    *,
    key_value_heads: int,
    memory_length: int = 0,
    key_bias: bool = True,
    shared_key_value: bool = False,
) -> SelfProjection:
    """The QKV projection of self-attention with these settings, of which at most one may differ from the plain form;
    shared keys and values may be grouped, too."""
    shape = (width, heads, head_width)
    variants: dict[str, SelfProjection] = {}
    if shared_key_value:
        variants["shared_key_value"] = SharedKeyValueProjection(*shape, bias, key_value_heads)
    elif key_value_heads != heads:
        variants["key_value_heads"] = GroupedQueryProjection(*shape, bias, key_value_heads)
    if memory_length:
        variants["memory_length"] = SegmentRecurrenceProjection(*shape, bias, memory_length)
    if bias and not key_bias:
        variants["key_bias"] = NoKeyBiasProjection(*shape)
    if len(variants) > 1:
        raise UserError(f"{' and '.join(variants)}: one attention cannot have both; leave one out")
    return variants.popitem()[1] if variants else SelfProjection(*shape, bias)
