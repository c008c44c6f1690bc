"""Multi-head attention: QKV projection + score + score mods + kernel (Vaswani et al. 2017).

Letters: B rows, T length, C width, H heads, D head_width, K beams of one source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto, get_kernel
from headwise.blocks.attention.score_mods import (
    ALWAYS,
    BOTH,
    AttentionInputs,
    AttentionLayout,
    Causal,
    Scaled,
    Score,
    ScoreMod,
)
from headwise.blocks.attention.scores import ScaledConfig
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.step import Step, StepForm, calls, inline
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.blocks.tables import AnyScore, AnyScoreMod
from headwise.errors import UserError

QKV = tuple[Tensor, Tensor, Tensor, AttentionLayout]
# (R, C) and the stream of the new tokens -> q, k, v and the mask of a fused kernel. Queries are (R, H, 1, D), or
# (B, H, K, D) where the beams of a source share its keys.
QKVStep = Callable[[Tensor, Stream], tuple[Tensor, Tensor, Tensor, Tensor | None]]


class QKVProjection(nn.Module, StepForm):
    """The QKV projection of an attention: `qkv(stream, ctx, score_mods, score)`, with all keys and values so far."""

    is_cross: ClassVar[bool] = False  # whether keys and values are those of a memory
    joins: ClassVar[bool] = True  # whether rows of different lengths may share its keys and values
    memory_length: int = 0  # tokens of earlier segments that it recalls

    @calls("forward")
    def stepper(self, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKVStep:
        def step(x: Tensor, at: Stream) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
            q, k, v, layout = self(at.with_x(x.unsqueeze(1)), ctx, score_mods, score)  # (R, C) -> (R, 1, C)
            return q, k, v, None if layout.keep is None else layout.keep[:, None, None]

        return step


class SelfProjection(QKVProjection):
    """The QKV projection of self-attention: queries, keys and values in one fused product."""

    roles: tuple[str, ...] = ("queries", "keys", "values")  # what the rows of the product are

    def __init__(self, width: int, heads: int, head_width: int, bias: bool = True):
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.project = nn.Linear(width, sum(self.rows), bias)

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows of the product belong to each role."""
        return (self.heads * self.head_width,) * len(self.roles)

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        q, k, v = self.split(self.project(stream.x))
        for mod in score_mods:
            if "rotate" in mod.hooks:  # before caching, so that a key is rotated once
                q, k = (mod.rotate(x, stream.pos) if x.shape[-1] else x for x in (q, k))
        kept = score.project_key(self.repeat_kv(k) if score.by_head else k)
        k, v = ctx.cache.extend(ctx.path, 2, kept, v)
        layout = self._layout(stream, ctx, k.shape[2], any(mod.needs_positions for mod in score_mods))
        return q, self.repeat_kv(k), self.repeat_kv(v), layout

    def stepper(self, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKVStep:
        shape = (-1, 3, self.heads, 1, self.head_width)
        # (R, 3HD) -> 3 x (R, H, 1, D): views that need no transposition
        return self._stepper(lambda fused: fused.view(shape).unbind(1), ctx, score_mods, score)

    def _stepper(
        self,
        split: Callable[[Tensor], tuple[Tensor, ...]],
        ctx: Context,
        score_mods: Sequence[ScoreMod],
        score: Score,
        group: int = 1,
    ) -> QKVStep:
        """The step form with a short form of `split`; `group` query heads share a key-value head."""
        project, cache, path = inline(self.project), ctx.cache, ctx.path
        rotations = [mod.rotate for mod in score_mods if "rotate" in mod.hooks]
        positions = any(mod.needs_positions for mod in score_mods)

        def step(x: Tensor, at: Stream) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
            q, k, v = split(project(x))
            for rotate in rotations:
                q, k = rotate(q, at.pos), rotate(k, at.pos)
            k, v = cache.extend(path, 2, score.project_key(k), v)
            if positions:
                cache.extend_positions(path, at.pos)
            if group > 1:  # heads that share keys are further queries of theirs: (R, H, 1, D) -> (R, G, H/G, D)
                q = q.unflatten(1, (-1, group)).squeeze(3)
            keep = cache.extend_keep(path, at)
            return q, k, v, None if keep is None else keep[:, None, None]  # (R, T) -> (R, 1, 1, T)

        return step

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (B, H, T, D)."""
        # (B, T, 3HD) -> (B, T, 3, H, D) -> 3 x (B, H, T, D); unbound first, their gradients are joined in one copy
        parts = fused.view(*fused.shape[:2], 3, self.heads, self.head_width).unbind(2)
        return tuple(part.transpose(1, 2) for part in parts)

    def repeat_kv(self, x: Tensor) -> Tensor:
        """Repeat cached keys or values for each query head."""
        return x

    def _layout(self, stream: Stream, ctx: Context, keys: int, positions: bool) -> AttentionLayout:
        """The layout of all keys so far; positions and masks are cached only where something needs them."""
        pos, segment = stream.pos, stream.segment
        if positions:
            pos = ctx.cache.extend_positions(ctx.path, pos)
        keep = ctx.cache.extend_keep(ctx.path, stream)
        if segment is not None:
            (segment,) = ctx.cache.extend((*ctx.path, "segment"), segment.dim() - 1, segment)
        return AttentionLayout(stream.x.shape[1], keys, stream.pos, pos, keep, stream.segment, segment, stream.tree)


class GroupedQueryProjection(SelfProjection):
    """Grouped-query attention (Ainslie et al. 2023): several query heads share one key-value head, so that the KV cache
    is smaller; with one for all of them, multi-query attention (Shazeer 2019)."""

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

    def stepper(self, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKVStep:
        group = self.heads // self.key_value_heads
        # (R, (H + 2G)D) -> (R, H, 1, D) and 2 x (R, G, 1, D)
        return self._stepper(lambda fused: self.split(fused.unsqueeze(1)), ctx, score_mods, score, group)

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        # (B, T, (H + 2G)D) -> (B, T, HD) and 2 x (B, T, GD) -> (B, H, T, D) and 2 x (B, G, T, D)
        return tuple(part.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in fused.split(self.rows, -1))

    def repeat_kv(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.heads // x.shape[1], dim=1)  # (B, G, T, D) -> (B, H, T, D)


class NoKeyBiasProjection(SelfProjection):
    """The QKV projection with biases of queries and values and none of keys (He et al. 2021)."""

    def __init__(self, width: int, heads: int, head_width: int):
        super().__init__(width, heads, head_width, bias=False)
        self.bias = nn.Parameter(torch.zeros(2 * heads * head_width))  # of all queries, then of all values

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().split(fused)
        of_q, of_v = self.bias.view(2, self.heads, 1, self.head_width)  # (2HD,) -> 2 x (H, 1, D)
        return q + of_q, k, v + of_v


class SelectedProjections(GroupedQueryProjection):
    """Values, and of queries and keys those that a score or a score mod reads (Tay et al. 2020). The others have no
    channels; they only tell how many tokens there are."""

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
        made = dict(zip(self.roles, super().split(fused), strict=True))
        none = made["values"][..., :0]  # (B, G, T, 0)
        return made.get("queries", self.repeat_kv(none)), made.get("keys", none), made["values"]


def find_operands_read(score: Score, score_mods: Sequence[ScoreMod]) -> frozenset[str]:
    """Whether anybody reads queries, keys, or both."""
    return score.reads.union(*(mod.reads for mod in score_mods))


class SegmentRecurrenceProjection(SelfProjection):
    """Segment-level recurrence (Transformer-XL, Dai et al. 2019, section 3.2): keys and values also of `memory_length`
    tokens of earlier segments, projected with the current weights."""

    def __init__(self, width: int, heads: int, head_width: int, bias: bool = True, memory_length: int = 1):
        super().__init__(width, heads, head_width, bias)
        self.memory_length = memory_length

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        length = stream.x.shape[1]
        q, k, v, layout = super().forward(ctx.cache.carry(ctx.path, stream), ctx, score_mods, score)
        return q[:, :, -length:], k, v, replace(layout, queries=length, query_pos=stream.pos)


class CrossProjection(QKVProjection):
    """The projections of cross-attention: queries from the stream, keys and values from a stream in the context's
    memory, projected once per source."""

    is_cross = True

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        bias: bool = True,
        memory_width: int = 0,
        name: str = "encoder",
        reads: Collection[str] = BOTH,
    ):
        super().__init__()
        self.heads, self.head_width, self.name = heads, head_width, name
        self.roles = ("keys", "values") if "keys" in reads else ("values",)  # what the rows of the product are
        self.rows: tuple[int, ...] = (heads * head_width,) * len(self.roles)
        self.query = nn.Linear(width, heads * head_width, bias)
        self.project = nn.Linear(memory_width or width, sum(self.rows), bias)

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        memory = ctx.memory[self.name]
        k, v = ctx.cache.once(ctx.path, lambda: self.keys_values(memory, score_mods, score), dim=2)
        # Beams of one source are contiguous rows: folded into the queries, they share its keys and values.
        # (B*K, T, C) -> (B, K*T, H, D) -> (B, H, K*T, D)
        q = self.query(stream.x).view(len(k), -1, self.heads, self.head_width).transpose(1, 2)
        for mod in score_mods:
            if "rotate" in mod.hooks:
                q = mod.rotate(q, fold_beams(stream.pos, q.shape[2]))
        # None where no mod needs positions, so that all layers of a step share one mask.
        pos = fold_beams(stream.pos, q.shape[2]) if any(mod.needs_positions for mod in score_mods) else None
        return q, k, v, AttentionLayout(q.shape[2], k.shape[2], pos, memory.pos, memory.keep)

    @calls("keys_values")
    def stepper(self, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKVStep:
        query, heads, head_width, cache, path = inline(self.query), self.heads, self.head_width, ctx.cache, ctx.path
        rotations = [mod.rotate for mod in score_mods if "rotate" in mod.hooks]
        mask_path = ("mask", self.name)  # one mask for all layers, additive as the kernel wants it

        def make() -> tuple[Tensor, Tensor]:
            return self.keys_values(ctx.memory[self.name], score_mods, score)

        def make_mask() -> Tensor | None:
            return additive_mask(ctx.memory[self.name])

        cache.once(path, make, dim=2)

        def step(x: Tensor, at: Stream) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
            k, v = cache.once(path, make, 2)  # others after sources have joined
            q = query(x)
            if k.shape[0] == x.shape[0]:  # one row for each source
                q = q.view(-1, heads, 1, head_width)
            else:
                q = q.view(k.shape[0], -1, heads, head_width).transpose(1, 2)  # (R, HD) -> (B, K, H, D) -> (B, H, K, D)
            for rotate in rotations:
                q = rotate(q, fold_beams(at.pos, q.shape[2]))
            return q, k, v, cache.once(mask_path, make_mask)

        return step

    def keys_values(self, memory: Stream, score_mods: Sequence[ScoreMod], score: Score) -> tuple[Tensor, Tensor]:
        """Keys, as the score projects them, and values: 2 x (B, H, S, D)."""
        rows, length, _ = memory.x.shape
        # (B, S, C) -> (B, S, 2, H, D) -> 2 x (B, H, S, D)
        fused = self.project(memory.x).view(rows, length, len(self.roles), self.heads, self.head_width)
        *keys, v = (part.transpose(1, 2) for part in fused.unbind(2))
        k = keys[0] if keys else v[..., :0]
        for mod in score_mods:
            if "rotate" in mod.hooks and keys:
                k = mod.rotate(k, memory.pos)
        return score.project_key(k), v


def additive_mask(memory: Stream) -> Tensor | None:
    """The padding mask of a memory as scores to add, (B, 1, 1, S); None where there is no padding."""
    if memory.keep is None:
        return None
    return torch.zeros_like(memory.keep, dtype=memory.x.dtype).masked_fill_(~memory.keep, -torch.inf)[:, None, None]


def fold_beams(pos: Tensor, queries: int) -> Tensor:
    """Fold the positions of beams into one row of queries: (T,) -> (K*T,) or (B*K, T) -> (B, K*T)."""
    if pos.shape[-1] == queries:
        return pos
    return pos.repeat(queries // len(pos)) if pos.dim() == 1 else pos.reshape(-1, queries)


class Attention(Part):
    """Multi-head attention: softmax(score(Q, K) + bias + mask) V in several heads, then an output projection; the
    score is Q K^T / sqrt(D) unless another is given.

    >>> import torch
    >>> Attention(64, heads=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        qkv: QKVProjection | None = None,
        head_width: int = 0,
        score: Score | None = None,
        score_mods: Sequence[ScoreMod] = (),
        kernel: str = "auto",
        dropout: float = 0.0,
        bias: bool = True,
        scale: float = 0.0,
    ):
        super().__init__()
        if not head_width and width % heads:
            raise UserError(f"heads: a width of {width} cannot be divided among {heads} heads; choose a divisor")
        head_width = head_width or width // heads
        self.qkv = qkv if qkv is not None else SelfProjection(width, heads, head_width, bias)
        self.score_mods = nn.ModuleList(score_mods)
        self.out = nn.Linear(heads * head_width, width, bias)
        self.score = score if score is not None else Scaled(head_width)
        self.scale = scale or self.score.scale
        self.dropout = dropout
        self.kernel = get_kernel(kernel)
        self.all_score_mods: tuple[ScoreMod, ...] = (*score_mods, *ALWAYS)

    @property
    def properties(self) -> Properties:
        cross, mods, length_free = self.qkv.is_cross, self.all_score_mods, self.score.length_free
        causal = cross or (any(mod.causal for mod in mods) and not any(mod.needs_key_count for mod in mods))
        # A score of limited length knows keys by their columns, and columns of padding count.
        joins = causal and self.qkv.joins and (cross or length_free)
        return Properties(
            causal=causal,
            steppable=causal,
            length_free=length_free,
            joins=joins,
            ragged=joins,
            packing=True,
            unbounded=self.qkv.memory_length > 0,
        )

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        q, k, v, layout = self.qkv(stream, ctx, self.all_score_mods, self.score)
        if ctx.outputs_needed is not None and self._queries_are_independent():
            q, layout = q[:, :, : ctx.outputs_needed], layout.take_first(ctx.outputs_needed)
        dropout = self.dropout if self.training else 0.0
        inputs = AttentionInputs(
            q,
            k,
            v,
            self.scale,
            layout,
            self.all_score_mods,
            dropout,
            ctx.shared,
            self.qkv.is_cross,
            self.score,
            ctx.side,
            ctx.path,
        )
        inputs = ctx.record.edit_inputs(ctx.path, inputs)
        ctx.record.observe(ctx.path, inputs)
        mixed = ctx.record.edit_heads(ctx.path, self.kernel(inputs)).transpose(1, 2)  # (B, H, Tq, D) -> (B, Tq, H, D)
        return self.out(mixed.reshape(len(stream.x), -1, mixed.shape[2] * mixed.shape[3]))

    def _queries_are_independent(self) -> bool:
        """Whether a query's output does not depend on the other queries: so it is with padding masks and rotary
        positions alone."""
        return (
            not self.qkv.is_cross
            and not self.score.needs_all_queries
            and all(mod in ALWAYS or mod.hooks <= {"rotate"} for mod in self.all_score_mods)
        )

    def stepper(self, ctx: Context) -> Step:
        """The step form where the newest token attends to all real keys, with the kernel left to us."""
        sees_all = all(mod.hooks <= {"rotate", "mask"} and not mod.masks_past for mod in self.all_score_mods)
        if self.kernel is not auto or not sees_all or not self.score.fused or self.score.by_head:
            return super().stepper(ctx)
        project_query, out, scale = self.score.project_query, inline(self.out), self.scale
        project = self.qkv.stepper(ctx, self.all_score_mods, self.score)

        def step(x: Tensor, at: Stream) -> Tensor:
            q, k, v, mask = project(x, at)
            mixed = F.scaled_dot_product_attention(project_query(q), k, v, mask, scale=scale)
            if mixed.shape[0] == x.shape[0]:
                return out(mixed.flatten(1))  # (R, H, 1, D) or (R, G, H/G, D) -> (R, HD)
            return out(mixed.transpose(1, 2).reshape(x.shape[0], -1))  # (B, H, K, D) -> (B, K, H, D) -> (R, HD)

        return step


class AttentionConfig(PartConfig):
    """Softmax attention. 0 leaves a number to the model."""

    kind: Literal["attention"] = "attention"
    attend_to: Literal["self", "memory"] = "self"
    heads: int = Field(0, ge=0)
    head_width: int = Field(0, ge=0)
    key_value_heads: int = Field(0, ge=0)
    qkv_bias: bool = True  # of queries, keys and values, where the model's attentions have biases
    key_bias: bool = True  # of keys, where queries and values have one
    memory_length: int = Field(0, ge=0)  # tokens of earlier segments that a language model still sees
    score: AnyScore = ScaledConfig()
    score_mods: tuple[AnyScoreMod, ...] = ()
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, site: BuildContext) -> nn.Module:
        output_bias = site.attention_bias
        site = replace(site, attention_bias=site.attention_bias and self.qkv_bias)
        heads = self.heads or site.heads
        head_width = self.head_width or site.head_width
        if not head_width and site.width % heads:
            raise UserError(f"heads: a width of {site.width} cannot be divided among {heads} heads; choose a divisor")
        head_width = head_width or site.width // heads
        chosen = tuple(mod.build(replace(site, heads=heads), head_width) for mod in self.score_mods)
        qkv: QKVProjection
        if self.attend_to == "memory":
            if not site.memory_width:
                raise UserError("attend_to: there is no memory in this stack; use attend_to = 'self'")
            qkv = CrossProjection(site.width, heads, head_width, site.attention_bias, site.memory_width)
        else:
            qkv = self._itself(site, heads, head_width)
            chosen += site.score_mods(heads, head_width) + ((Causal(),) if site.causal else ())
        score = self.score.build(head_width, head_width, heads)
        # After them, so that weights of models in which everything is read are drawn in the order they always were.
        if (reads := find_operands_read(score, chosen)) < BOTH:
            qkv = self._selected(site, heads, head_width, reads)
        return Attention(
            site.width,
            heads,
            qkv=qkv,
            head_width=head_width,
            score=score,
            score_mods=chosen,
            kernel=self.kernel,
            dropout=site.attention_dropout,
            bias=output_bias,
        )

    def _selected(self, site: BuildContext, heads: int, head_width: int, reads: frozenset[str]) -> QKVProjection:
        """Projections for a score that does not compare queries with keys."""
        shape, bias = (site.width, heads, head_width), site.attention_bias
        if self.attend_to == "memory":
            return CrossProjection(*shape, bias, site.memory_width, reads=reads)
        if self.memory_length:
            raise UserError("memory_length and score: one attention cannot have both; leave one out")
        return SelectedProjections(*shape, bias, self.key_value_heads or site.key_value_heads or heads, reads)

    def _itself(self, site: BuildContext, heads: int, head_width: int) -> QKVProjection:
        shape, bias = (site.width, heads, head_width), site.attention_bias
        fewer = self.key_value_heads or site.key_value_heads or heads
        makers = {
            "key_value_heads": (fewer != heads, lambda: GroupedQueryProjection(*shape, bias, fewer)),
            "memory_length": (
                self.memory_length > 0,
                lambda: SegmentRecurrenceProjection(*shape, bias, self.memory_length),
            ),
            "key_bias": (bias and not self.key_bias, lambda: NoKeyBiasProjection(*shape)),
        }
        chosen = [name for name, (asked, _) in makers.items() if asked]
        if len(chosen) > 1:
            raise UserError(f"{' and '.join(chosen)}: one attention cannot have both; leave one out")
        return makers[chosen[0]][1]() if chosen else SelfProjection(*shape, bias)
