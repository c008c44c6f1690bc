"""Sparse attention: exact softmax over the keys of a sparse pattern, without a T x T matrix.

Local attention (Liu et al. 2018), sliding windows (Beltagy et al. 2020, "Longformer"), strided attention (Child et al.
2019, "Generating Long Sequences with Sparse Transformers") and BigBird (Zaheer et al. 2020). Queries are taken in
blocks; each block attends to a window of keys, which is a view of them, or to a few key blocks that are gathered side
by side (BigBird). What the pattern excludes inside a window is masked.

Letters: B rows, T tokens, H heads, D head_width, N blocks, S tokens of a block, W keys of a block, R key blocks of a
block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto, compute_weights
from headwise.blocks.attention.score_mods import BASE_MASKS, AttentionInputs, AttentionLayout
from headwise.blocks.mixers.block_sparse import attend, attend_blocks, gather_blocks, replace_blocks
from headwise.blocks.mixers.patterns import (
    BigBirdGraph,
    BlockPartition,
    EdgeCountBias,
    Local,
    Pattern,
    Sliding,
    Strided,
)
from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stack import Stack, require_plain
from headwise.blocks.stream import Context, Properties, Stream, make_hashable


class BlockSparseAttention(QKVMixer):
    """Block-sparse attention: softmax(Q K^T / sqrt(D)) V over the keys of a pattern."""

    def __init__(self, pattern: Pattern, **settings: Any):
        super().__init__(**settings)
        self.pattern = pattern

    @property
    def properties(self) -> Properties:
        joins = self.causal and self.pattern.relative  # the newest tokens of all rows are in one column
        return Properties(causal=self.causal, steppable=self.causal, packing=True, joins=joins, ragged=joins)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        k, v = ctx.cache.extend(ctx.path, 2, k, v)
        inputs = self._build_inputs(q, k, v, stream, ctx)
        self.record_map(q, k, v, stream, ctx, lambda: compute_weights(inputs))
        if inputs.layout.offset:
            return auto(self._select_keys(inputs))
        blocks = self.pattern.partition(inputs.layout.keys)
        return auto(inputs) if blocks.length <= blocks.width else self.mix_blocks(inputs, blocks)

    def _build_inputs(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> AttentionInputs:
        """Attention inputs with all keys so far; positions are indices from the start of the row."""
        keys, keep, segment = k.shape[2], ctx.cache.extend_keep(ctx.path, stream), stream.segment
        if segment is not None:
            (segment,) = ctx.cache.extend((*ctx.path, "segment"), 1, segment)
        sizes = make_hashable(keys), make_hashable(q.shape[2])
        key_pos = compute_once(ctx, ("key_pos", sizes[0]), lambda: torch.arange(keys, device=q.device))
        query_pos = compute_once(ctx, ("query_pos", *sizes), lambda: key_pos[keys - q.shape[2] :])
        layout = AttentionLayout(q.shape[2], keys, query_pos, key_pos, keep, stream.segment, segment)
        return AttentionInputs(q, k, v, self.head_width**-0.5, layout, (self.pattern, *BASE_MASKS), shared=ctx.shared)

    def _select_keys(self, inputs: AttentionInputs) -> AttentionInputs:
        """The inputs while decoding, without keys that no new token attends to."""
        layout = inputs.layout
        slices = self.pattern.select_keys(layout.offset, layout.queries)
        k, v = (concatenate_slices(x, 2, slices) for x in (inputs.k, inputs.v))
        keep, segment = (
            None if x is None else concatenate_slices(x, 1, slices) for x in (layout.keep, layout.key_segment)
        )
        assert layout.key_pos is not None
        key_pos = concatenate_slices(layout.key_pos, 0, slices)
        layout = replace(layout, keys=k.shape[2], key_pos=key_pos, keep=keep, key_segment=segment)
        # a single token attends to all of its keys
        score_mods = BASE_MASKS if layout.queries == 1 else inputs.score_mods
        return replace(inputs, k=k, v=v, layout=layout, score_mods=score_mods, shared={})

    def mix_blocks(self, inputs: AttentionInputs, blocks: BlockPartition) -> Tensor:
        """Attention of all blocks of a row to their windows."""
        k, v = blocks.unfold(inputs.k), blocks.unfold(inputs.v)
        return blocks.merge(attend(blocks.split(inputs.q), k, v, self._get_window_mask(inputs, blocks)))

    def _get_window_mask(self, inputs: AttentionInputs, blocks: BlockPartition) -> Tensor:
        """The additive mask of the windows, once per call: (B, 1, N, S, W), where B is 1 if all rows share it."""
        layout = inputs.layout
        key = ("blocks", self.pattern.key(), id(layout.keep), id(layout.key_segment), make_hashable(layout.keys))
        if key not in inputs.shared:
            inputs.shared[key] = (self._build_window_mask(inputs, blocks), layout)  # the layout keeps the ids valid
        mask: Tensor = inputs.shared[key][0]
        return mask

    def _build_window_mask(self, inputs: AttentionInputs, blocks: BlockPartition) -> Tensor:
        segment, device = inputs.layout.key_segment, inputs.q.device
        queries = torch.arange(1 if self.pattern.uniform else blocks.block, device=device)
        keys = torch.arange(-blocks.left, blocks.block + blocks.right, device=device)
        visible = self.pattern.is_visible(queries.unsqueeze(1), keys)  # (S, W)
        visible = visible & blocks.unfold_labels(get_keep(inputs), 0).unsqueeze(2)  # (B, N, S, W)
        if segment is not None:
            visible = visible & (
                blocks.split_labels(segment).unsqueeze(3) == blocks.unfold_labels(segment).unsqueeze(2)
            )
        return to_additive_mask(visible, inputs.q.dtype).unsqueeze(1)


class WrappedLocalAttention(QKVMixer):
    """Local attention of an encoder whose blocks form a ring: the first one attends to the last as if it came before
    (transformers' Reformer). A text of one block has full attention."""

    def __init__(self, block: int, before: int, after: int, **settings: Any):
        super().__init__(**settings)
        self.block, self.shifts = block, range(before, -after - 1, -1)

    @property
    def properties(self) -> Properties:
        return Properties(padding=False)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        blocks = BlockPartition(q.shape[2], self.block)
        ring = self.shifts if blocks.count > 1 else range(1)
        keep = torch.ones(q.shape[:1] + q.shape[2:3], dtype=torch.bool, device=q.device)
        keep = blocks.split_labels(keep if stream.keep is None else stream.keep, 0)  # (B, N, S)
        visible = torch.cat([keep.roll(shift, 1) for shift in ring], 2)[:, None, :, None]  # (B, 1, N, 1, W)
        keys, values = (torch.cat([blocks.split(x).roll(shift, 2) for shift in ring], 3) for x in (k, v))
        scores = blocks.split(q) @ keys.mT * self.head_width**-0.5  # (B, H, N, S, W)
        weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1)
        self.record_map(q, k, v, stream, ctx, lambda: self._build_map(weights, ring, q.shape[2]))
        return blocks.merge(weights @ values)

    def _build_map(self, weights: Tensor, ring: range, length: int) -> Tensor:
        """The map of all tokens from the weights of blocks: (B, H, N, S, W) -> (B, H, T, T)."""
        rows, heads, count, size, _ = weights.shape
        full = weights.new_zeros(rows, heads, count, size, count, size)
        index = torch.arange(count, device=weights.device)
        for shift, part in zip(ring, weights.split(size, -1), strict=True):
            full[:, :, index, :, (index - shift) % count] += part.permute(2, 0, 1, 3, 4)
        return full.reshape(rows, heads, count * size, count * size)[:, :, :length, :length]


class StridedAttention(BlockSparseAttention):
    """Strided attention: a block attends to its window, and each of its queries also to the tokens of the same column,
    its index in the block, of all blocks beyond."""

    def mix_blocks(self, inputs: AttentionInputs, blocks: BlockPartition) -> Tensor:
        q, k, v = (blocks.split(x) for x in (inputs.q, inputs.k, inputs.v))
        near = q @ blocks.unfold(inputs.k).mT * inputs.scale + self._get_window_mask(inputs, blocks)  # (B, H, N, S, W)
        far = (q.transpose(2, 3) @ k.transpose(2, 3).mT).transpose(2, 3) * inputs.scale  # (B, H, S, N, N) -> back
        scores = torch.cat((near, far + self._build_column_mask(inputs, blocks)), 4)
        near, far = scores.softmax(-1).split((near.shape[4], far.shape[4]), 4)
        columns = (far.transpose(2, 3) @ v.transpose(2, 3)).transpose(2, 3)  # (B, H, N, S, D)
        return blocks.merge(near @ blocks.unfold(inputs.v) + columns)

    def _build_column_mask(self, inputs: AttentionInputs, blocks: BlockPartition) -> Tensor:
        """The additive mask of the keys in each query's column, without those of its window: (B, 1, N, S, N)."""

        def split_columns(labels: Tensor, fill: int = -1) -> Tensor:
            return blocks.split_labels(labels, fill).mT.unsqueeze(1)  # (B, T) -> (B, N, S) -> (B, 1, S, N)

        segment, index = inputs.layout.key_segment, torch.arange(blocks.count, device=inputs.q.device)
        distance = (index.unsqueeze(1) - index).unsqueeze(1)  # (N, 1, N)
        visible = (distance > 1 if self.causal else distance.abs() > 1) & split_columns(get_keep(inputs), 0)
        if segment is not None:
            visible = visible & (blocks.split_labels(segment).unsqueeze(3) == split_columns(segment))
        return to_additive_mask(visible, inputs.q.dtype).unsqueeze(1)  # (B, N, S, N) -> (B, 1, N, S, N)


class BigBirdAttention(QKVMixer):
    """BigBird attention: softmax(Q K^T / sqrt(D)) V over the window, random and global blocks of each block. The few
    global blocks, and `extra` global tokens before the text, are one dense product."""

    def __init__(self, graph: BigBirdGraph, extra: int = 0, **settings: Any):
        super().__init__(**settings)
        self.graph, self.extra = graph, extra

    @property
    def properties(self) -> Properties:
        return Properties(padding=not self.graph.like_transformers, packing=True)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        graph, extra, length = self.graph, self.extra, q.shape[2] - self.extra
        layout = AttentionLayout(
            q.shape[2], q.shape[2], stream.pos, stream.pos, stream.keep, stream.segment, stream.segment
        )
        inputs = AttentionInputs(q, k, v, self.head_width**-0.5, layout, BASE_MASKS, shared=ctx.shared)
        if graph.is_full(length):
            self.record_map(q, k, v, stream, ctx, lambda: compute_weights(inputs))
            return auto(inputs)
        count = -(-length // graph.block)
        last_block = graph.find_last_block(length, None if stream.keep is None else stream.keep[:, extra:], q.device)
        key_blocks = graph.choose_key_blocks(last_block, count, self.heads, ctx.path, self.training)

        def build_dense_inputs() -> AttentionInputs:
            bias = EdgeCountBias(graph.count_edges(key_blocks, last_block), graph.block, extra)
            return replace(inputs, score_mods=(bias, *BASE_MASKS), shared={})

        self.record_map(q, k, v, stream, ctx, lambda: compute_weights(build_dense_inputs()))
        if count <= graph.width or stream.segment is not None:
            return auto(build_dense_inputs())
        return self.mix_blocks(inputs, key_blocks, last_block)

    def mix_blocks(self, inputs: AttentionInputs, key_blocks: Tensor, last_block: Tensor) -> Tensor:
        """Sparse attention of all blocks, then dense attention of the global blocks and the extra tokens."""
        extra = self.extra
        blocks = BlockPartition(inputs.layout.keys - extra, self.graph.block)
        q, k, v = (blocks.split(x[:, :, extra:]) for x in (inputs.q, inputs.k, inputs.v))
        extra_k, extra_v = (x[:, :, None, :extra] for x in (inputs.k, inputs.v))
        out = attend_blocks(q, k, v, extra_k, extra_v, self._build_mask(inputs, blocks, key_blocks), key_blocks)
        index = self.graph.list_global_blocks(last_block)[:, None, None].expand(-1, self.heads, 1, -1)  # (B, H, 1, R)
        global_q = torch.cat((inputs.q[:, :, :extra], gather_blocks(q, index).flatten(2, 3)), 2)
        global_out = auto(replace(inputs, q=global_q, layout=replace(inputs.layout, queries=global_q.shape[2])))
        extra_out, block_out = global_out.split((extra, global_out.shape[2] - extra), 2)
        return torch.cat((extra_out, blocks.merge(replace_blocks(out, index, block_out))), 2)

    def _build_mask(self, inputs: AttentionInputs, blocks: BlockPartition, key_blocks: Tensor) -> Tensor:
        """The additive mask of the keys of each block: (B, H, N, 1, W), where B is 1 if all rows share it."""
        text = get_keep(inputs)[:, None, self.extra :, None]  # (B, 1, T, 1)
        keep = blocks.split(text).expand(-1, self.heads, -1, -1, -1)  # (B, H, N, S, 1)
        visible = gather_blocks(keep, key_blocks).squeeze(4) & (key_blocks >= 0).repeat_interleave(blocks.block, 3)
        return to_additive_mask(F.pad(visible, (0, self.extra), value=True), inputs.q.dtype).unsqueeze(3)


class GlobalTokenStack(Stack):
    """A stack with learned global tokens before every text (BigBird-ETC's), which its outputs leave out."""

    def __init__(self, stack: Stack, tokens: nn.Embedding):
        require_plain(stack, "extra")
        super().__init__(list(stack.layers), stack.final, stack.layer_numbers)
        self.tokens = tokens

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        count = self.tokens.num_embeddings
        x = torch.cat((self.tokens.weight.expand(stream.x.shape[0], -1, -1), stream.x), 1)  # (B, extra + T, C)
        keep = None if stream.keep is None else F.pad(stream.keep, (count, 0), value=True)
        outputs = super().forward(Stream(x, F.pad(stream.pos, (count, 0)), keep), ctx)
        return stream.with_x(outputs.x[:, count:])


def get_keep(inputs: AttentionInputs) -> Tensor:
    """True = real token, (B, T); B is 1 if there is no padding."""
    keep = inputs.layout.keep
    return torch.ones(1, inputs.layout.keys, dtype=torch.bool, device=inputs.q.device) if keep is None else keep


def to_additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 for visible keys; for others so low that their weight is 0, but finite: a row without keys gives no NaN."""
    return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)


def concatenate_slices(x: Tensor, dim: int, slices: tuple[slice, ...]) -> Tensor:
    """Slices of a tensor along one dimension, concatenated."""
    parts = [x[(slice(None),) * dim + (part,)] for part in slices]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def compute_once(ctx: Context, key: Any, compute: Callable[[], Any]) -> Any:
    """A value that the layers of one call share."""
    if key not in ctx.shared:
        ctx.shared[key] = compute()
    return ctx.shared[key]


class LocalMixerConfig(QKVMixerConfig):
    """Local attention: a block of tokens attends to itself, to `before` blocks before it and, in an encoder, to `after`
    blocks after it."""

    kind: Literal["local"] = "local"
    block: int = Field(256, ge=1)
    before: int = Field(0, ge=0)
    after: int = Field(0, ge=0)
    wrap: bool = False  # as transformers' Reformer: the last block comes before the first, in an encoder

    def build(self, build_ctx: BuildContext) -> nn.Module:
        if self.wrap:
            build_ctx.refuse_causal("local with wrap")
            return WrappedLocalAttention(self.block, self.before, self.after, **self.resolve_arguments(build_ctx))
        return BlockSparseAttention(
            Local(self.block, self.before, self.after, build_ctx.causal), **self.resolve_arguments(build_ctx)
        )


class WindowMixerConfig(QKVMixerConfig):
    """Sliding-window attention: a token attends to itself, to `left` tokens before it and, in an encoder, to `right`
    after it."""

    kind: Literal["window"] = "window"
    left: int = Field(128, ge=0)
    right: int = Field(128, ge=0)

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return BlockSparseAttention(
            Sliding(self.left, self.right, build_ctx.causal), **self.resolve_arguments(build_ctx)
        )


class StridedConfig(QKVMixerConfig):
    """Strided attention: a token attends to tokens nearer than `stride`, and to every `stride`-th one beyond."""

    kind: Literal["strided"] = "strided"
    stride: int = Field(64, ge=1)

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return StridedAttention(Strided(self.stride, build_ctx.causal), **self.resolve_arguments(build_ctx))


class BigBirdMixerConfig(QKVMixerConfig):
    """BigBird attention: blocks attend to a window of blocks, to random blocks and to global blocks at both ends.

    `variant` decides what the paper leaves open: with "transformers" the last block is that of the padded batch, texts
    of few blocks get full attention, and in evaluation the first block stands in for each random one.
    """

    kind: Literal["bigbird"] = "bigbird"
    block: int = Field(64, ge=1)
    window: int = Field(3, ge=1)  # blocks, with the query block in the middle
    random: int = Field(3, ge=0)  # blocks, drawn for each layer and head
    first: int = Field(1, ge=0)  # global blocks at the start of a text
    last: int = Field(1, ge=0)  # global blocks at its end
    extra: int = Field(0, ge=0)  # global tokens before the text
    seed: int = Field(0, ge=0)
    variant: Literal["paper", "transformers"] = "paper"

    @field_validator("window")
    @classmethod
    def _check_odd(cls, window: int) -> int:
        if window % 2 == 0:
            raise ValueError("a window has the block itself and as many blocks on either side; use an odd number")
        return window

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal("bigbird")
        graph = BigBirdGraph(
            self.block,
            self.window // 2,
            self.random,
            self.first,
            self.last,
            self.seed,
            like_transformers=self.variant == "transformers",
        )
        return BigBirdAttention(graph, self.extra, **self.resolve_arguments(build_ctx))
