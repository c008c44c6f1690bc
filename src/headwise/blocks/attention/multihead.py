"""Multi-head attention: QKV projection + score + score mods + kernel (Vaswani et al. 2017).

Projections of variants (grouped-query attention, segment-level recurrence) are in `projections.py`.

Letters: B rows, T length, C width, H heads, D head_width, S length of the memory, K beams of one source, R rows of a
decoding step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto, get_kernel
from headwise.blocks.attention.score_mods import (
    BASE_MASKS,
    QUERIES_AND_KEYS,
    AttentionInputs,
    AttentionLayout,
    Causal,
    Scaled,
    Score,
    ScoreMod,
)
from headwise.blocks.attention.scores import ScaledConfig
from headwise.blocks.decode_step import HasDecodeStep, Step, calls, to_function
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.blocks.tables import AnyScore, AnyScoreMod
from headwise.errors import UserError

QKV = tuple[Tensor, Tensor, Tensor, AttentionLayout]
# (R, C) and the stream of the new tokens -> q, k, v and the mask of SDPA. Queries are (R, H, 1, D), or (B, H, K, D)
# where the beams of a source share its keys.
QKVStep = Callable[[Tensor, Stream], tuple[Tensor, Tensor, Tensor, Tensor | None]]


class QKVProjection(nn.Module, HasDecodeStep):
    """The QKV projection of an attention: `qkv(stream, ctx, score_mods, score)` returns queries, all keys and values so
    far, and their layout."""

    is_cross: ClassVar[bool] = False  # whether keys and values come from a memory
    joins: ClassVar[bool] = True  # whether rows of different lengths may share its keys and values
    groups_queries: ClassVar[bool] = False  # whether its decode step turns query heads into queries of a shared head
    memory_length: int = 0  # tokens of earlier segments whose keys and values it adds

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls) and "input_linear" not in vars(cls):  # it may read the stream in another way
            setattr(cls, "input_linear", QKVProjection.input_linear)  # noqa: B010  (mypy: properties are read-only)

    @property
    def input_linear(self) -> nn.Module | None:
        """The linear layer that alone reads the vectors of the stream; None: there is no such layer."""
        return None

    @calls("forward")
    def build_decode_step(self, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKVStep:
        def step(x: Tensor, at: Stream) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
            q, k, v, layout = self(at.with_x(x.unsqueeze(1)), ctx, score_mods, score)  # (R, C) -> (R, 1, C)
            return q, k, v, None if layout.keep is None else layout.keep[:, None, None]

        return step


class SelfProjection(QKVProjection):
    """The QKV projection of self-attention: queries, keys and values in one fused product."""

    roles: tuple[str, ...] = ("queries", "keys", "values")  # in the order of the rows of the fused weight

    def __init__(self, width: int, heads: int, head_width: int, bias: bool = True):
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.project = nn.Linear(width, sum(self.rows), bias)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the fused weight for each role."""
        return (self.heads * self.head_width,) * len(self.roles)

    @property
    def input_linear(self) -> nn.Module | None:
        return self.project

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        q, k, v = self.split(self.project(stream.x))  # (B, T, C) -> (B, T, 3HD) -> 3 x (B, H, T, D)
        for mod in score_mods:
            if "edit_qk" in mod.hooks:  # before caching, so that a key is rotated once
                q = mod.edit_queries(q, stream.pos) if q.shape[-1] else q
                k = mod.edit_keys(k, stream.pos) if k.shape[-1] else k
        k = score.project_key(self.repeat_kv(k) if score.by_head else k)
        stored = ctx.cache.extend(ctx.path, 2, *list_distinct(k, v))  # all keys and values so far
        k, v = stored[0], stored[-1]
        layout = self._extend_layout(stream, ctx, k.shape[2], any(mod.needs_positions for mod in score_mods))
        return q, self.repeat_kv(k), self.repeat_kv(v), layout

    def build_decode_step(self, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKVStep:
        shape = (-1, 3, self.heads, 1, self.head_width)
        # (R, 3HD) -> 3 x (R, H, 1, D): views without a transposition
        return self._build_decode_step(lambda fused: fused.view(shape).unbind(1), ctx, score_mods, score)

    def _build_decode_step(
        self,
        split: Callable[[Tensor], tuple[Tensor, ...]],
        ctx: Context,
        score_mods: Sequence[ScoreMod],
        score: Score,
        group: int = 1,
    ) -> QKVStep:
        """The decode step with a `split` of (R, 3HD); `group` query heads share a key-value head."""
        project, cache, path = to_function(self.project), ctx.cache, ctx.path
        edits = [(mod.edit_queries, mod.edit_keys) for mod in score_mods if "edit_qk" in mod.hooks]
        needs_positions = any(mod.needs_positions for mod in score_mods)

        def step(x: Tensor, at: Stream) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
            q, k, v = split(project(x))
            for edit_queries, edit_keys in edits:
                q, k = edit_queries(q, at.pos), edit_keys(k, at.pos)
            stored = cache.extend(path, 2, *list_distinct(score.project_key(k), v))
            k, v = stored[0], stored[-1]
            if needs_positions:
                cache.extend_positions(path, at.pos)
            if group > 1:  # query heads become further queries of the head they share: (R, H, 1, D) -> (R, G, H/G, D)
                q = q.unflatten(1, (-1, group)).squeeze(3)
            return q, k, v, cache.build_mask(path, at)

        return step

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (B, H, T, D)."""
        # (B, T, 3HD) -> (B, T, 3, H, D) -> 3 x (B, H, T, D); unbind first, so that one copy joins their gradients
        qkv = fused.view(*fused.shape[:2], 3, self.heads, self.head_width).unbind(2)
        return tuple(x.transpose(1, 2) for x in qkv)

    def repeat_kv(self, x: Tensor) -> Tensor:
        """Repeat keys or values for each query head of their group: (B, G, T, D) -> (B, H, T, D)."""
        return x

    def _extend_layout(self, stream: Stream, ctx: Context, keys: int, needs_positions: bool) -> AttentionLayout:
        """The layout of all keys so far; positions and masks are cached only where something needs them."""
        pos, segment = stream.pos, stream.segment
        if needs_positions:
            pos = ctx.cache.extend_positions(ctx.path, pos)
        keep = ctx.cache.extend_keep(ctx.path, stream)
        if segment is not None:
            (segment,) = ctx.cache.extend((*ctx.path, "segment"), segment.dim() - 1, segment)
        layout = AttentionLayout(
            stream.x.shape[1], keys, stream.pos, pos, keep, stream.segment, segment, stream.tree, stream.grid
        )
        if stream.pair is None:
            return layout
        return replace(layout, pair=stream.pair, rows_per_pair=stream.x.shape[0] // stream.pair.shape[0])


class CrossProjection(QKVProjection):
    """The QKV projection of cross-attention: queries from the stream, keys and values from a stream in the context's
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
        reads: Collection[str] = QUERIES_AND_KEYS,
        shared_key_value: bool = False,
    ):
        super().__init__()
        self.heads, self.head_width, self.name, self.shared_key_value = heads, head_width, name, shared_key_value
        own_keys = "keys" in reads and not shared_key_value
        self.roles = ("keys", "values") if own_keys else ("values",)  # in the order of the rows of `project`
        self.rows: tuple[int, ...] = (heads * head_width,) * len(self.roles)
        self.query = nn.Linear(width, heads * head_width, bias)
        self.project = nn.Linear(memory_width or width, sum(self.rows), bias)

    @property
    def input_linear(self) -> nn.Module | None:
        return self.query

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        memory = ctx.memory[self.name]
        stored = ctx.cache.compute_once(
            ctx.path, lambda: list_distinct(*self.project_memory(memory, score_mods, score)), dim=2
        )
        k, v = stored[0], stored[-1]
        # The K beams of a source are contiguous rows: folded into its queries, they share keys and values.
        # (B*K, T, C) -> (B, K*T, H, D) -> (B, H, K*T, D)
        q = self.query(stream.x).view(k.shape[0], -1, self.heads, self.head_width).transpose(1, 2)
        for mod in score_mods:
            if "edit_qk" in mod.hooks:
                q = mod.edit_queries(q, fold_beams(stream.pos, q.shape[2]))
        # None where no mod needs positions, so that all layers of a step share one mask
        pos = fold_beams(stream.pos, q.shape[2]) if any(mod.needs_positions for mod in score_mods) else None
        return q, k, v, AttentionLayout(q.shape[2], k.shape[2], pos, memory.pos, memory.keep)

    @calls("project_memory")
    def build_decode_step(self, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKVStep:
        query, heads, head_width, cache, path = (
            to_function(self.query),
            self.heads,
            self.head_width,
            ctx.cache,
            ctx.path,
        )
        edits = [mod.edit_queries for mod in score_mods if "edit_qk" in mod.hooks]
        mask_path = ("mask", self.name)  # one mask for all layers, additive as SDPA wants it

        def project_memory() -> tuple[Tensor, ...]:
            return list_distinct(*self.project_memory(ctx.memory[self.name], score_mods, score))

        def build_mask() -> Tensor | None:
            return build_additive_mask(ctx.memory[self.name])

        cache.compute_once(path, project_memory, dim=2)

        def step(x: Tensor, at: Stream) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
            stored = cache.compute_once(path, project_memory, 2)  # looked up at each step, since sources may join
            k, v = stored[0], stored[-1]
            q = query(x)
            if k.shape[0] == x.shape[0]:  # one row for each source
                q = q.view(-1, heads, 1, head_width)
            else:
                q = q.view(k.shape[0], -1, heads, head_width).transpose(1, 2)  # (R, HD) -> (B, K, H, D) -> (B, H, K, D)
            for edit_queries in edits:
                q = edit_queries(q, fold_beams(at.pos, q.shape[2]))
            return q, k, v, cache.compute_once(mask_path, build_mask)

        return step

    def project_memory(self, memory: Stream, score_mods: Sequence[ScoreMod], score: Score) -> tuple[Tensor, Tensor]:
        """Keys, as the score projects them, and values: 2 x (B, H, S, D)."""
        # (B, S, C) -> (B, S, 2HD) -> (B, S, 2, H, D) -> 2 x (B, H, S, D)
        fused = self.project(memory.x).unflatten(-1, (len(self.roles), self.heads, self.head_width))
        *keys, v = (x.transpose(1, 2) for x in fused.unbind(2))
        if self.shared_key_value:
            keys = [v]
        k = keys[0] if keys else v[..., :0]
        for mod in score_mods:
            if "edit_qk" in mod.hooks and keys:
                k = mod.edit_keys(k, memory.pos)
        return score.project_key(k), v


def list_distinct(k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """The tensors that a cache stores of keys and values: one where keys are the values."""
    return (v,) if k is v else (k, v)


def build_additive_mask(memory: Stream) -> Tensor | None:
    """The padding mask of a memory as scores to add, (B, 1, 1, S); None where there is no padding."""
    if memory.keep is None:
        return None
    mask = torch.zeros_like(memory.keep, dtype=memory.x.dtype).masked_fill_(~memory.keep, -torch.inf)
    return mask[:, None, None]  # (B, S) -> (B, 1, 1, S)


def fold_beams(pos: Tensor, queries: int) -> Tensor:
    """Fold the positions of beams into one row of queries: (T,) -> (K*T,) or (B*K, T) -> (B, K*T)."""
    if pos.shape[-1] == queries:
        return pos
    return pos.repeat(queries // len(pos)) if pos.dim() == 1 else pos.reshape(-1, queries)


class Attention(Part):
    """Multi-head attention: softmax(score(Q, K) + bias + mask) V in H heads, then an output projection. The default
    score is Q K^T / sqrt(D).

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
        self.all_score_mods: tuple[ScoreMod, ...] = (*score_mods, *BASE_MASKS)

    @property
    def properties(self) -> Properties:
        cross, mods, length_free = self.qkv.is_cross, self.all_score_mods, self.score.length_free
        causal = cross or (any(mod.causal for mod in mods) and not any(mod.needs_key_count for mod in mods))
        # A score of limited length identifies keys by their columns, and padding takes columns.
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
        q, k, v, layout = self.qkv(stream, ctx, self.all_score_mods, self.score)  # (B, T, C) -> 3 x (B, H, T, D)
        if ctx.outputs_needed is not None and self._queries_are_independent():
            q, layout = q[:, :, : ctx.outputs_needed], layout.take_first(ctx.outputs_needed)
        inputs = AttentionInputs(
            q,
            k,
            v,
            self.scale,
            layout,
            self.all_score_mods,
            dropout=self.dropout if self.training else 0.0,
            shared=ctx.shared,
            is_cross=self.qkv.is_cross,
            score=self.score,
            qkv=self.qkv,
            side=ctx.side,
            path=ctx.path,
        )
        inputs = ctx.record.edit_inputs(ctx.path, inputs)
        ctx.record.observe(ctx.path, inputs)
        heads = ctx.record.edit_heads(ctx.path, self.kernel(inputs))
        x = self.project_heads(heads, stream)  # (B, H, T, D) -> (B, T, C)
        return x.reshape(stream.x.shape[0], -1, x.shape[-1])  # beams are rows again: (B, K*T, C) -> (B*K, T, C)

    def project_heads(self, heads: Tensor, stream: Stream) -> Tensor:
        """The output projection: (B, H, T, D) -> (B, T, C)."""
        return self.out(heads.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, H, D) -> (B, T, HD)

    def _queries_are_independent(self) -> bool:
        """Whether queries may be left out: where score mods are padding masks and rotary positions alone."""
        return (
            not self.qkv.is_cross
            and not self.score.needs_all_queries
            and all(mod in BASE_MASKS or mod.hooks <= {"edit_qk"} for mod in self.all_score_mods)
        )

    @property
    def input_linear(self) -> nn.Module | None:
        return self.qkv.input_linear

    def build_decode_step(self, ctx: Context) -> Step:
        """The decode step where the newest token attends to all real keys, with `kernel = "auto"`."""
        sees_all = all(mod.hooks <= {"edit_qk", "mask"} and not mod.masks_past for mod in self.all_score_mods)
        # a score with a factor for each head cannot apply it to grouped queries
        regrouped = self.qkv.groups_queries and type(self.score).project_query is not Score.project_query
        if self.kernel is not auto or not sees_all or not self.score.fused or self.score.by_head or regrouped:
            return super().build_decode_step(ctx)
        project_query, out, scale = self.score.project_query, to_function(self.out), self.scale
        project_qkv = self.qkv.build_decode_step(ctx, self.all_score_mods, self.score)

        def step(x: Tensor, at: Stream) -> Tensor:
            q, k, v, mask = project_qkv(x, at)
            heads = F.scaled_dot_product_attention(project_query(q), k, v, mask, scale=scale)
            if heads.shape[0] == x.shape[0]:
                return out(heads.flatten(1))  # (R, H, 1, D) or (R, G, H/G, D) -> (R, HD)
            return out(heads.transpose(1, 2).reshape(x.shape[0], -1))  # (B, H, K, D) -> (B, K, H, D) -> (R, HD)

        return step


def find_operands_read(score: Score, score_mods: Sequence[ScoreMod]) -> frozenset[str]:
    """Which of "queries" and "keys" the score or a score mod reads."""
    return score.reads.union(*(mod.reads for mod in score_mods))


class AttentionConfig(PartConfig):
    """Multi-head softmax attention. 0 leaves a number to the model."""

    kind: Literal["attention"] = "attention"
    attend_to: Literal["self", "memory", "unpooled"] = "self"  # unpooled: tokens before a block's pooling (Funnel)
    heads: int = Field(0, ge=0)
    head_width: int = Field(0, ge=0)
    key_value_heads: int = Field(0, ge=0)
    qkv_bias: bool = True  # of queries, keys and values, where the model's attentions have biases
    key_bias: bool = True  # of keys, where queries and values have one
    out_bias: bool = True  # of the output projection, where the model's attentions have biases
    memory_length: int = Field(0, ge=0)  # tokens of earlier segments that a language model still sees
    # keys and values are one projection (W_k = W_v; mesh-tensorflow's `shared_kv`), stored once in the KV cache
    shared_key_value: bool = False
    score: AnyScore = ScaledConfig()
    score_mods: tuple[AnyScoreMod, ...] = ()
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        output_bias = build_ctx.attention_bias and self.out_bias
        build_ctx = replace(build_ctx, attention_bias=build_ctx.attention_bias and self.qkv_bias)
        heads = self.heads or build_ctx.heads
        head_width = self.head_width or build_ctx.head_width
        if not head_width and build_ctx.width % heads:
            raise UserError(
                f"heads: a width of {build_ctx.width} cannot be divided among {heads} heads; choose a divisor"
            )
        head_width = head_width or build_ctx.width // heads
        score_mods = tuple(mod.build(replace(build_ctx, heads=heads), head_width) for mod in self.score_mods)
        qkv: QKVProjection
        if self.attend_to == "memory":
            if not build_ctx.memory_width:
                raise UserError("attend_to: there is no memory in this stack; use attend_to = 'self'")
            qkv = CrossProjection(
                build_ctx.width,
                heads,
                head_width,
                build_ctx.attention_bias,
                build_ctx.memory_width,
                shared_key_value=self.shared_key_value,
            )
        else:
            unpooled = self.attend_to == "unpooled"
            build = self._build_pooled_projection if unpooled else self._build_self_projection
            qkv = build(build_ctx, heads, head_width)
            score_mods += build_ctx.build_score_mods(heads, head_width) + ((Causal(),) if build_ctx.causal else ())
        score = self.score.build(head_width, head_width, heads)
        # Last, so that models whose score reads queries and keys draw their weights in the same order as ever.
        if (reads := find_operands_read(score, score_mods)) < QUERIES_AND_KEYS:
            qkv = self._build_selected_projections(build_ctx, heads, head_width, reads)
        return self.build_attention(
            build_ctx,
            heads,
            qkv=qkv,
            head_width=head_width,
            score=score,
            score_mods=score_mods,
            kernel=self.kernel,
            dropout=build_ctx.attention_dropout,
            bias=output_bias,
        )

    def build_attention(self, build_ctx: BuildContext, heads: int, **settings: Any) -> Attention:
        """The attention of these parts."""
        return Attention(build_ctx.width, heads, **settings)

    def _build_pooled_projection(self, build_ctx: BuildContext, heads: int, head_width: int) -> QKVProjection:
        from headwise.blocks.attention.projections import PooledProjection  # which subclasses CrossProjection

        build_ctx.refuse_causal("attend_to = 'unpooled'")
        if self.shared_key_value:
            raise UserError("shared_key_value: attend_to = 'unpooled' has separate keys and values; leave it out")
        return PooledProjection(build_ctx.width, heads, head_width, build_ctx.attention_bias)

    def _build_self_projection(self, build_ctx: BuildContext, heads: int, head_width: int) -> QKVProjection:
        from headwise.blocks.attention.projections import build_self_projection  # which subclasses SelfProjection

        return build_self_projection(
            build_ctx.width,
            heads,
            head_width,
            build_ctx.attention_bias,
            key_value_heads=self.key_value_heads or build_ctx.key_value_heads or heads,
            memory_length=self.memory_length,
            key_bias=self.key_bias,
            shared_key_value=self.shared_key_value,
        )

    def _build_selected_projections(
        self, build_ctx: BuildContext, heads: int, head_width: int, reads: frozenset[str]
    ) -> QKVProjection:
        """The projections for a score that does not compare queries with keys."""
        from headwise.blocks.attention.projections import SelectedProjections  # which subclasses SelfProjection

        shape, bias = (build_ctx.width, heads, head_width), build_ctx.attention_bias
        if self.attend_to == "memory":
            return CrossProjection(*shape, bias, build_ctx.memory_width, reads=reads)
        if self.memory_length:
            raise UserError("memory_length and score: one attention cannot have both; leave one out")
        return SelectedProjections(*shape, bias, self.key_value_heads or build_ctx.key_value_heads or heads, reads)
