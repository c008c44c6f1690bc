"""Block-sparse attention: exact softmax over the keys that a pattern shows, without a matrix of all pairs.

Queries are taken in blocks; each block looks at one stretch of keys, a view of them (local, window), or at a few blocks
that are put side by side (BigBird). What a pattern hides inside is masked.

Letters: B rows, T tokens, H heads, D head_width, N blocks, S tokens of a block, W keys that a block looks at, R blocks
that a block sees.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto, weights
from headwise.blocks.attention.score_mods import ALWAYS, AttentionInputs, AttentionLayout
from headwise.blocks.mixers.block_sparse import attend, attend_blocks, gathered, placed
from headwise.blocks.mixers.patterns import Blocks, Counted, Graph, Local, Pattern, Sliding, Strided
from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Properties, Stream


class BlockSparseAttention(QKVMixer):
    """Block-sparse attention: softmax(Q K^T / sqrt(D)) V over the keys that a pattern shows."""

    def __init__(self, pattern: Pattern, **frame: Any):
        super().__init__(**frame)
        self.pattern = pattern

    @property
    def properties(self) -> Properties:
        return Properties(causal=self.causal, steppable=self.causal, packing=True)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        k, v = ctx.cache.extend(ctx.path, 2, k, v)
        inputs = self._look(q, k, v, stream, ctx)
        self.show(q, k, v, stream, ctx, lambda: weights(inputs))
        if inputs.layout.offset:
            return auto(self._latest(inputs))
        blocks = self.pattern.blocks(inputs.layout.keys)
        return auto(inputs) if blocks.length <= blocks.width else self.blocked(inputs, blocks)

    def _look(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> AttentionInputs:
        """All keys so far, at their places in the row."""
        keys, keep, segment = k.shape[2], ctx.cache.extend_keep(ctx.path, stream), stream.segment
        if segment is not None:
            (segment,) = ctx.cache.extend((*ctx.path, "segment"), 1, segment)
        places = shared(ctx, ("places", keys), lambda: torch.arange(keys, device=q.device))
        first = shared(ctx, ("places", keys, q.shape[2]), lambda: places[keys - q.shape[2] :])
        layout = AttentionLayout(q.shape[2], keys, first, places, keep, stream.segment, segment)
        return AttentionInputs(q, k, v, self.head_width**-0.5, layout, (self.pattern, *ALWAYS), shared=ctx.shared)

    def _latest(self, inputs: AttentionInputs) -> AttentionInputs:
        """The look of the newest tokens, without keys that none of them sees."""
        layout = inputs.layout
        chosen = self.pattern.shown(layout.offset, layout.queries)
        k, v = (taken(x, 2, chosen) for x in (inputs.k, inputs.v))
        keep, segment = (None if x is None else taken(x, 1, chosen) for x in (layout.keep, layout.key_segment))
        assert layout.key_pos is not None
        places = taken(layout.key_pos, 0, chosen)
        layout = replace(layout, keys=k.shape[2], key_pos=places, keep=keep, key_segment=segment)
        score_mods = ALWAYS if layout.queries == 1 else inputs.score_mods  # a single token sees all that is shown to it
        return replace(inputs, k=k, v=v, layout=layout, score_mods=score_mods, shared={})

    def blocked(self, inputs: AttentionInputs, blocks: Blocks) -> Tensor:
        """The whole row at once, block by block."""
        k, v = blocks.around(inputs.k), blocks.around(inputs.v)
        return blocks.whole(attend(blocks.own(inputs.q), k, v, self._mask(inputs, blocks)))

    def _mask(self, inputs: AttentionInputs, blocks: Blocks) -> Tensor:
        """What the keys around each block's queries add to scores: (B, 1, N, S, W), B being 1 where rows are alike."""
        layout = inputs.layout
        key = ("blocks", self.pattern.key(), id(layout.keep), id(layout.key_segment), layout.keys)
        if key not in inputs.shared:
            inputs.shared[key] = (self._made_mask(inputs, blocks), layout)  # the sight keeps the ids valid
        found: Tensor = inputs.shared[key][0]
        return found

    def _made_mask(self, inputs: AttentionInputs, blocks: Blocks) -> Tensor:
        segment, device = inputs.layout.key_segment, inputs.q.device
        queries = torch.arange(1 if self.pattern.alike else blocks.block, device=device)
        keys = torch.arange(-blocks.left, blocks.block + blocks.right, device=device)
        seen = self.pattern.sees(queries.unsqueeze(1), keys) & blocks.marks(real(inputs), 0).unsqueeze(
            2
        )  # (B, N, S, W)
        if segment is not None:
            seen = seen & (blocks.own_marks(segment).unsqueeze(3) == blocks.marks(segment).unsqueeze(2))
        return additive(seen, inputs.q.dtype).unsqueeze(1)


class StridedAttention(BlockSparseAttention):
    """A block of queries looks at the keys around it, each of them also at its own column of all blocks beyond."""

    def blocked(self, inputs: AttentionInputs, blocks: Blocks) -> Tensor:
        q, k, v = (blocks.own(x) for x in (inputs.q, inputs.k, inputs.v))
        near = q @ blocks.around(inputs.k).mT * inputs.scale + self._mask(inputs, blocks)  # (B, H, N, S, W)
        far = (q.transpose(2, 3) @ k.transpose(2, 3).mT).transpose(2, 3) * inputs.scale  # (B, H, S, N, N) -> back
        mixed = torch.cat((near, far + self._columns(inputs, blocks)), 4).softmax(-1)
        near, far = mixed.split((near.shape[4], far.shape[4]), 4)
        columns = (far.transpose(2, 3) @ v.transpose(2, 3)).transpose(2, 3)  # (B, H, N, S, D)
        return blocks.whole(near @ blocks.around(inputs.v) + columns)

    def _columns(self, inputs: AttentionInputs, blocks: Blocks) -> Tensor:
        """What the keys in the column of each query add to scores, those around its block left out: (B, 1, N, S, N)."""

        def in_columns(marks: Tensor, fill: int = -1) -> Tensor:
            return blocks.own_marks(marks, fill).mT.unsqueeze(1)  # (B, T) -> (B, N, S) -> (B, 1, S, N)

        segment, number = inputs.layout.key_segment, torch.arange(blocks.count, device=inputs.q.device)
        distance = (number.unsqueeze(1) - number).unsqueeze(1)  # (N, 1, N)
        seen = (distance > 1 if self.causal else distance.abs() > 1) & in_columns(real(inputs), 0)  # (B, N, S, N)
        if segment is not None:
            seen = seen & (blocks.own_marks(segment).unsqueeze(3) == in_columns(segment))
        return additive(seen, inputs.q.dtype).unsqueeze(1)


class BigBirdAttention(QKVMixer):
    """softmax(Q K^T / sqrt(D)) V over the keys that a graph of blocks shows; the few blocks that see everything, and
    `extra` tokens before the text, are one dense product."""

    def __init__(self, graph: Graph, extra: int = 0, **frame: Any):
        super().__init__(**frame)
        self.graph, self.extra = graph, extra

    @property
    def properties(self) -> Properties:
        return Properties(padding=not self.graph.released, packing=True)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        graph, extra, length = self.graph, self.extra, q.shape[2] - self.extra
        layout = AttentionLayout(
            q.shape[2], q.shape[2], stream.pos, stream.pos, stream.keep, stream.segment, stream.segment
        )
        inputs = AttentionInputs(q, k, v, self.head_width**-0.5, layout, ALWAYS, shared=ctx.shared)
        if graph.sees_all(length):
            self.show(q, k, v, stream, ctx, lambda: weights(inputs))
            return auto(inputs)
        count = -(-length // graph.block)
        final = graph.final(length, None if stream.keep is None else stream.keep[:, extra:], q.device)
        seen = graph.seen(final, count, self.heads, ctx.path, self.training)

        def masked() -> AttentionInputs:
            counted = Counted(graph.counts(seen, final), graph.block, extra)
            return replace(inputs, score_mods=(counted, *ALWAYS), shared={})

        self.show(q, k, v, stream, ctx, lambda: weights(masked()))
        if count <= graph.width or stream.segment is not None:
            return auto(masked())
        return self.blocked(inputs, seen, final)

    def blocked(self, inputs: AttentionInputs, seen: Tensor, final: Tensor) -> Tensor:
        """Blocks that see a few, then those that see everything, and the extra tokens."""
        extra = self.extra
        blocks = Blocks(inputs.layout.keys - extra, self.graph.block)
        q, k, v = (blocks.own(x[:, :, extra:]) for x in (inputs.q, inputs.k, inputs.v))
        more_k, more_v = (x[:, :, None, :extra] for x in (inputs.k, inputs.v))
        out = attend_blocks(q, k, v, more_k, more_v, self._mask(inputs, blocks, seen), seen)
        ends = self.graph.ends(final)[:, None, None].expand(-1, self.heads, 1, -1)  # (B, H, 1, R)
        asking = torch.cat((inputs.q[:, :, :extra], gathered(q, ends).flatten(2, 3)), 2)
        answer = auto(replace(inputs, q=asking, layout=replace(inputs.layout, queries=asking.shape[2])))
        found, answer = answer.split((extra, answer.shape[2] - extra), 2)
        return torch.cat((found, blocks.whole(placed(out, ends, answer))), 2)

    def _mask(self, inputs: AttentionInputs, blocks: Blocks, seen: Tensor) -> Tensor:
        """What the keys that each block looks at add to scores: (B, H, N, 1, W), B being 1 where rows are alike."""
        text = real(inputs)[:, None, self.extra :, None]  # (B, 1, T, 1)
        marks = blocks.own(text).expand(-1, self.heads, -1, -1, -1)  # (B, H, N, S, 1)
        shown = gathered(marks, seen).squeeze(4) & (seen >= 0).repeat_interleave(blocks.block, 3)
        return additive(F.pad(shown, (0, self.extra), value=True), inputs.q.dtype).unsqueeze(3)


class GlobalTokenStack(Stack):
    """A stack that reads some vectors of its own before every text."""

    def __init__(self, stack: Stack, tokens: nn.Embedding):
        super().__init__(list(stack.layers), stack.final, stack.order)
        self.tokens = tokens

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        count = self.tokens.num_embeddings
        x = torch.cat((self.tokens.weight.expand(len(stream.x), -1, -1), stream.x), 1)  # (B, extra + T, C)
        keep = None if stream.keep is None else F.pad(stream.keep, (count, 0), value=True)
        found = super().forward(Stream(x, F.pad(stream.pos, (count, 0)), keep), ctx)
        return stream.with_x(found.x[:, count:])


def real(inputs: AttentionInputs) -> Tensor:
    """True = real token, (B, T); B being 1 where all are."""
    keep = inputs.layout.keep
    return torch.ones(1, inputs.layout.keys, dtype=torch.bool, device=inputs.q.device) if keep is None else keep


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key is seen; else so little that its weight is 0, but finite: padding that sees nothing is no NaN."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)


def taken(x: Tensor, dim: int, chosen: tuple[slice, ...]) -> Tensor:
    """Parts of a tensor along one dimension, one behind the other."""
    parts = [x[(slice(None),) * dim + (each,)] for each in chosen]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def shared(ctx: Context, key: Any, make: Any) -> Any:
    """What the layers of one call make once."""
    if key not in ctx.shared:
        ctx.shared[key] = make()
    return ctx.shared[key]


class LocalMixerConfig(QKVMixerConfig):
    """A block of tokens sees itself, `before` blocks before it and `after` after it (in an encoder)."""

    kind: Literal["local"] = "local"
    block: int = Field(256, ge=1)
    before: int = Field(0, ge=0)
    after: int = Field(0, ge=0)

    def build(self, site: BuildContext) -> nn.Module:
        return BlockSparseAttention(Local(self.block, self.before, self.after, site.causal), **self.frame(site))


class WindowMixerConfig(QKVMixerConfig):
    """A token sees itself, `left` tokens before it and `right` after it (in an encoder)."""

    kind: Literal["window"] = "window"
    left: int = Field(128, ge=0)
    right: int = Field(128, ge=0)

    def build(self, site: BuildContext) -> nn.Module:
        return BlockSparseAttention(Sliding(self.left, self.right, site.causal), **self.frame(site))


class StridedConfig(QKVMixerConfig):
    """A token sees those nearer than `stride`, and every `stride`-th beyond."""

    kind: Literal["strided"] = "strided"
    stride: int = Field(64, ge=1)

    def build(self, site: BuildContext) -> nn.Module:
        return StridedAttention(Strided(self.stride, site.causal), **self.frame(site))


class BigBirdMixerConfig(QKVMixerConfig):
    """Blocks see their neighbours, some random blocks, and those at the ends, which see everything.

    `variant` decides what the paper leaves open: with "transformers" the last block is that of the padded batch, texts
    of few blocks are seen whole, and in evaluation the first block is seen again in the place of each random one.
    """

    kind: Literal["bigbird"] = "bigbird"
    block: int = Field(64, ge=1)
    window: int = Field(3, ge=1)  # blocks, the own one in the middle
    random: int = Field(3, ge=0)  # blocks, other ones for each layer and head
    first: int = Field(1, ge=0)  # blocks that see all and are seen by all
    last: int = Field(1, ge=0)
    extra: int = Field(0, ge=0)  # tokens before the text that see all and are seen by all
    seed: int = Field(0, ge=0)
    variant: Literal["paper", "transformers"] = "paper"

    @field_validator("window")
    @classmethod
    def _odd(cls, window: int) -> int:
        if window % 2 == 0:
            raise ValueError("a window has the block itself and as many on either side, so it must be odd")
        return window

    def build(self, site: BuildContext) -> nn.Module:
        site.must_look_ahead("bigbird")
        reach = self.window // 2
        graph = Graph(self.block, reach, self.random, self.first, self.last, self.seed, self.variant == "transformers")
        return BigBirdAttention(graph, self.extra, **self.frame(site))
