"""Block-sparse attention: exact softmax over the keys that a pattern shows, without a matrix of all pairs.

Queries are taken in blocks; each block looks at one stretch of keys, a view of them (local, window), or at a few blocks
that are put side by side (BigBird). What a pattern hides inside is masked.

Letters: B rows, T tokens, H heads, D head_width, N blocks, S tokens of a block, W keys that a block looks at, R blocks
that a block sees.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.kernels import auto, weights
from headwise.blocks.look import Look, Sight
from headwise.blocks.mixers.choosing import attend, attend_chosen, gathered, placed
from headwise.blocks.mixers.patterns import Blocks, Counted, Graph, Pattern
from headwise.blocks.mixers.projected import Projected
from headwise.blocks.part import Properties
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Stream
from headwise.blocks.terms import ALWAYS


class Sparse(Projected):
    """softmax(Q K^T / sqrt(D)) V over the keys that a pattern shows."""

    def __init__(self, pattern: Pattern, **frame: Any):
        super().__init__(**frame)
        self.pattern = pattern

    @property
    def properties(self) -> Properties:
        return Properties(causal=self.causal, steppable=self.causal)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        k, v = ctx.cache.extend(ctx.place, 2, k, v)
        look = self._look(q, k, v, stream, ctx)
        self.show(q, k, v, stream, ctx, lambda: weights(look))
        if look.sight.offset:
            return auto(self._latest(look))
        blocks = self.pattern.blocks(look.sight.keys)
        return auto(look) if blocks.length <= blocks.width else self.blocked(look, blocks)

    def _look(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Look:
        """All keys so far, at their places in the row."""
        keys, keep, segment = k.shape[2], stream.keep, stream.segment
        if keep is not None:
            (keep,) = ctx.cache.extend((*ctx.place, "keep"), 1, keep)
        if segment is not None:
            (segment,) = ctx.cache.extend((*ctx.place, "segment"), 1, segment)
        places = shared(ctx, ("places", keys), lambda: torch.arange(keys, device=q.device))
        first = shared(ctx, ("places", keys, q.shape[2]), lambda: places[keys - q.shape[2] :])
        sight = Sight(q.shape[2], keys, first, places, keep, stream.segment, segment)
        return Look(q, k, v, self.head_width**-0.5, sight, (self.pattern, *ALWAYS), shared=ctx.shared)

    def _latest(self, look: Look) -> Look:
        """The look of the newest tokens, without keys that none of them sees."""
        sight = look.sight
        chosen = self.pattern.shown(sight.offset, sight.queries)
        k, v = (taken(x, 2, chosen) for x in (look.k, look.v))
        keep, segment = (None if x is None else taken(x, 1, chosen) for x in (sight.keep, sight.key_segment))
        assert sight.key_pos is not None
        places = taken(sight.key_pos, 0, chosen)
        sight = replace(sight, keys=k.shape[2], key_pos=places, keep=keep, key_segment=segment)
        terms = ALWAYS if sight.queries == 1 else look.terms  # a single token sees all that is shown to it
        return replace(look, k=k, v=v, sight=sight, terms=terms, shared={})

    def blocked(self, look: Look, blocks: Blocks) -> Tensor:
        """The whole row at once, block by block."""
        k, v = blocks.around(look.k), blocks.around(look.v)
        return blocks.whole(attend(blocks.own(look.q), k, v, self._mask(look, blocks)))

    def _mask(self, look: Look, blocks: Blocks) -> Tensor:
        """What the keys around each block's queries add to scores: (B, 1, N, S, W), B being 1 where rows are alike."""
        sight = look.sight
        key = ("blocks", self.pattern.key(), id(sight.keep), id(sight.key_segment), sight.keys)
        if key not in look.shared:
            look.shared[key] = (self._made_mask(look, blocks), sight)  # the sight keeps the ids valid
        found: Tensor = look.shared[key][0]
        return found

    def _made_mask(self, look: Look, blocks: Blocks) -> Tensor:
        segment, device = look.sight.key_segment, look.q.device
        queries = torch.arange(1 if self.pattern.alike else blocks.block, device=device)
        keys = torch.arange(-blocks.left, blocks.block + blocks.right, device=device)
        seen = self.pattern.sees(queries.unsqueeze(1), keys) & blocks.marks(real(look), 0).unsqueeze(2)  # (B, N, S, W)
        if segment is not None:
            seen = seen & (blocks.own_marks(segment).unsqueeze(3) == blocks.marks(segment).unsqueeze(2))
        return additive(seen, look.q.dtype).unsqueeze(1)


class StridedSparse(Sparse):
    """A block of queries looks at the keys around it, each of them also at its own column of all blocks beyond."""

    def blocked(self, look: Look, blocks: Blocks) -> Tensor:
        q, k, v = (blocks.own(x) for x in (look.q, look.k, look.v))
        near = q @ blocks.around(look.k).mT * look.scale + self._mask(look, blocks)  # (B, H, N, S, W)
        far = (q.transpose(2, 3) @ k.transpose(2, 3).mT).transpose(2, 3) * look.scale  # (B, H, S, N, N) -> back
        mixed = torch.cat((near, far + self._columns(look, blocks)), 4).softmax(-1)
        near, far = mixed.split((near.shape[4], far.shape[4]), 4)
        columns = (far.transpose(2, 3) @ v.transpose(2, 3)).transpose(2, 3)  # (B, H, N, S, D)
        return blocks.whole(near @ blocks.around(look.v) + columns)

    def _columns(self, look: Look, blocks: Blocks) -> Tensor:
        """What the keys in the column of each query add to scores, those around its block left out: (B, 1, N, S, N)."""

        def in_columns(marks: Tensor, fill: int = -1) -> Tensor:
            return blocks.own_marks(marks, fill).mT.unsqueeze(1)  # (B, T) -> (B, N, S) -> (B, 1, S, N)

        segment, number = look.sight.key_segment, torch.arange(blocks.count, device=look.q.device)
        distance = (number.unsqueeze(1) - number).unsqueeze(1)  # (N, 1, N)
        seen = (distance > 1 if self.causal else distance.abs() > 1) & in_columns(real(look), 0)  # (B, N, S, N)
        if segment is not None:
            seen = seen & (blocks.own_marks(segment).unsqueeze(3) == in_columns(segment))
        return additive(seen, look.q.dtype).unsqueeze(1)


class BigBird(Projected):
    """softmax(Q K^T / sqrt(D)) V over the keys that a graph of blocks shows; the few blocks that see everything, and
    `extra` tokens before the text, are one dense product."""

    def __init__(self, graph: Graph, extra: int = 0, **frame: Any):
        super().__init__(**frame)
        self.graph, self.extra = graph, extra

    @property
    def properties(self) -> Properties:
        return Properties(padding=not self.graph.released)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        graph, extra, length = self.graph, self.extra, q.shape[2] - self.extra
        sight = Sight(q.shape[2], q.shape[2], stream.pos, stream.pos, stream.keep, stream.segment, stream.segment)
        look = Look(q, k, v, self.head_width**-0.5, sight, ALWAYS, shared=ctx.shared)
        if graph.sees_all(length):
            self.show(q, k, v, stream, ctx, lambda: weights(look))
            return auto(look)
        count = -(-length // graph.block)
        final = graph.final(length, None if stream.keep is None else stream.keep[:, extra:], q.device)
        seen = graph.seen(final, count, self.heads, ctx.place, self.training)

        def masked() -> Look:
            counted = Counted(graph.counts(seen, final), graph.block, extra)
            return replace(look, terms=(counted, *ALWAYS), shared={})

        self.show(q, k, v, stream, ctx, lambda: weights(masked()))
        if count <= graph.width or stream.segment is not None:
            return auto(masked())
        return self.blocked(look, seen, final)

    def blocked(self, look: Look, seen: Tensor, final: Tensor) -> Tensor:
        """Blocks that see a few, then those that see everything, and the extra tokens."""
        extra = self.extra
        blocks = Blocks(look.sight.keys - extra, self.graph.block)
        q, k, v = (blocks.own(x[:, :, extra:]) for x in (look.q, look.k, look.v))
        more_k, more_v = (x[:, :, None, :extra] for x in (look.k, look.v))
        out = attend_chosen(q, k, v, more_k, more_v, self._mask(look, blocks, seen), seen)
        ends = self.graph.ends(final)[:, None, None].expand(-1, self.heads, 1, -1)  # (B, H, 1, R)
        asking = torch.cat((look.q[:, :, :extra], gathered(q, ends).flatten(2, 3)), 2)
        answer = auto(replace(look, q=asking, sight=replace(look.sight, queries=asking.shape[2])))
        found, answer = answer.split((extra, answer.shape[2] - extra), 2)
        return torch.cat((found, blocks.whole(placed(out, ends, answer))), 2)

    def _mask(self, look: Look, blocks: Blocks, seen: Tensor) -> Tensor:
        """What the keys that each block looks at add to scores: (B, H, N, 1, W), B being 1 where rows are alike."""
        text = real(look)[:, None, self.extra :, None]  # (B, 1, T, 1)
        marks = blocks.own(text).expand(-1, self.heads, -1, -1, -1)  # (B, H, N, S, 1)
        shown = gathered(marks, seen).squeeze(4) & (seen >= 0).repeat_interleave(blocks.block, 3)
        return additive(F.pad(shown, (0, self.extra), value=True), look.q.dtype).unsqueeze(3)


class WithExtra(Stack):
    """A stack that reads some vectors of its own before every text."""

    def __init__(self, stack: Stack, tokens: nn.Embedding):
        super().__init__(list(stack.layers), stack.final, stack.order)
        self.tokens = tokens

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        count = self.tokens.num_embeddings
        x = torch.cat((self.tokens.weight.expand(len(stream.x), -1, -1), stream.x), 1)  # (B, extra + T, C)
        keep = None if stream.keep is None else F.pad(stream.keep, (count, 0), value=True)
        found = super().forward(Stream(x, F.pad(stream.pos, (count, 0)), keep), ctx)
        return stream.carrying(found.x[:, count:])


def real(look: Look) -> Tensor:
    """True = real token, (B, T); B being 1 where all are."""
    keep = look.sight.keep
    return torch.ones(1, look.sight.keys, dtype=torch.bool, device=look.q.device) if keep is None else keep


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
