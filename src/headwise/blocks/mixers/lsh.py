"""Attention among tokens that fall into the same bucket (Kitaev et al. 2020, Reformer: The Efficient Transformer).

Queries are keys, so similar tokens find each other by hashing: in each round a random rotation sends a token to its
nearest of `buckets` corners. Who meets in a bucket is in `blocks/mixers/lsh_kernel.py`.

DISCREPANCY: paper and trax sort tokens and cut them into chunks wherever a border falls. In a decoder that tells of the
future: a later token in another bucket moves the borders. Here a decoder's chunks begin anew with each bucket.
DISCREPANCY: trax, transformers and reformer-pytorch let tokens of different buckets see each other where they share
chunks, and count a pair in each round in which it meets (`shortcuts`). The paper does neither, and so do we.
DISCREPANCY: reformer-pytorch divides scores by sqrt(D) although keys have length 1; the paper's code does not.

Letters: B rows, H heads, R rounds, T length, D head_width.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from headwise.blocks.attention.multihead import SelfProjection
from headwise.blocks.attention.score_mods import ALWAYS, ApproximateMap, AttentionInputs, AttentionLayout, ScoreMod
from headwise.blocks.heads import product_dtype
from headwise.blocks.mixers.lsh_kernel import NOWHERE, ChunkedAttention, Mix, weights
from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.reversible import SAVED_CHOICES
from headwise.blocks.stream import Context, Properties, Stream

UNFACTORED, MOST = 7, 14  # powers of two: above the first, a bucket is a pair of corners
CORNERS = [(2**p, 1) if p <= UNFACTORED else (2 ** (p // 2), 2 ** (p - p // 2)) for p in range(MOST + 1)]
HALF = 2**UNFACTORED // 2  # directions for the first corner, and for the second; each has two ends


Mixed = tuple[Tensor, Callable[[], Tensor]]  # outputs (B, H, Tq, D), and what makes their map (B, H, Tq, Tk)


class SharedQKProjection(SelfProjection):
    """Keys are queries of length 1: k = q / |q|, in one product with the values (section 2, "shared-QK")."""

    roles = ("queries", "values")

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        # (B, T, 2HD) -> (B, T, 2, H, D) -> 2 x (B, H, T, D)
        q, v = fused.view(*fused.shape[:2], 2, self.heads, self.head_width).permute(2, 0, 3, 1, 4).unbind(0)
        k = F.rms_norm(q, (self.head_width,), eps=1e-6) * self.head_width**-0.5
        return q, k.to(q.dtype), v

    def geometry(self, stream: Stream, ctx: Context, keys: int) -> AttentionLayout:
        """Of the stream and all keys so far."""
        return self._layout(stream, ctx, keys, positions=False)


class NotSelf(ScoreMod):
    """Hide the token itself, which would outshine all others; the first of a causal text has nobody else."""

    may_mask_all = False

    def __init__(self, causal: bool):
        super().__init__()
        self.causal = causal

    def key(self) -> Any:
        return "others", self.causal

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        device = None if layout.query_pos is None else layout.query_pos.device
        ones = torch.ones(layout.queries, layout.keys, dtype=torch.bool, device=device)
        hidden = ones.triu(layout.offset) if self.causal else ones.triu(layout.offset) & ones.tril(layout.offset)
        return hidden & ~(hidden.all(-1, keepdim=True) & ones.tril(layout.offset))


class LSHAttention(QKVMixer):
    """Attention by locality-sensitive hashing: softmax over the keys that share a bucket with the query in some round,
    in chunks of `chunk` places.

    Buckets are 2^p: as many as `buckets`, or the power of two below 2 n / chunk for a text of n tokens, and one where
    it fits a chunk. Rotations are fresh in each pass of training and of `seed` in evaluation.

    >>> LSHAttention(64, heads=4, chunk=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        chunk: int = 64,
        rounds: int = 4,
        buckets: int = 0,
        shortcuts: bool = False,
        seed: int = 0,
        **frame: Any,
    ):
        super().__init__(width, heads, **frame)
        self.chunk, self.rounds, self.shortcuts = chunk, rounds, shortcuts
        self.power = buckets.bit_length() - 1 if buckets else None
        self.ladder = [chunk + 1, *(chunk << p for p in range(1, MOST))]  # from so many tokens on: 2 buckets, 4, 8, ...
        draws = torch.Generator("cpu").manual_seed(seed)
        rotations = torch.empty(self.heads, self.head_width, rounds, 2 * HALF)
        rotations.copy_(torch.randn(rotations.shape, generator=draws, device="cpu"))
        self.register_buffer("rotations", rotations, persistent=False)
        self.rotations: Tensor
        self.qkv: SharedQKProjection

    def layout(self, width: int, bias: bool) -> SharedQKProjection:
        return SharedQKProjection(width, self.heads, self.head_width, bias)

    @property
    def properties(self) -> Properties:
        """A decoder is not told what of its text is padding, nor how long it will become."""
        causal, known = self.causal and not self.shortcuts, self.power is not None
        padding = not self.shortcuts and (known or not self.causal)
        steppable = causal and known
        return Properties(
            causal=causal,
            steppable=steppable,
            padding=padding,
            joins=steppable,
            ragged=steppable,
            packing=not self.shortcuts,
        )

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        new = q.shape[2]
        if self.power is None:
            k, v = ctx.cache.extend(ctx.path, 2, k, v)
            layout = self.qkv.geometry(stream, ctx, k.shape[2])
            buckets = self.hashed(k, layout, ctx)
        else:
            hashes = self.hashed(k, AttentionLayout(new, new), ctx).transpose(2, 3)  # (B, H, R, T) -> (B, H, T, R)
            k, v, hashes = ctx.cache.extend(ctx.path, 2, k, v, hashes)
            layout, buckets = self.qkv.geometry(stream, ctx, k.shape[2]), hashes.transpose(2, 3)
        going_on = self.power is not None and new < layout.keys
        out, implied = (self.glance if going_on else self.meet)(q, k, v, apart(buckets, layout), layout)

        def exact() -> AttentionInputs:
            return AttentionInputs(q, k, v, 1.0, layout, (NotSelf(self.causal), *ALWAYS))

        ctx.record.observe(ctx.path, ApproximateMap(implied, exact))
        return out

    def meet(self, q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, layout: AttentionLayout) -> Mixed:
        """All tokens at once, in chunks. Those that have had their answers ask nothing."""
        most = (
            2 ** self.largest(layout) + 1 if layout.key_segment is None else 0
        )  # with padding's; documents have theirs
        meeting = ChunkedAttention.of(buckets, self.chunk, self.causal, self.shortcuts, most)
        low = product_dtype(self.out.weight)
        q = F.pad(q, (0, 0, layout.offset, 0)) if layout.offset else q
        asked, keys, values = (x.flatten(0, 1).to(low) for x in (q, k, v))  # (B, H, T, D) -> (Z, T, D)
        out, z = Mix.apply(asked, keys, values, meeting)

        def implied() -> Tensor:
            return weights(asked, keys, z, meeting).unflatten(0, q.shape[:2])[:, :, layout.offset :]

        return out.view(v.shape)[:, :, layout.offset :], implied  # (Z, T, D) -> (B, H, T, D)

    def glance(self, q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, layout: AttentionLayout) -> Mixed:
        """The newest tokens alone, for which nothing need be sorted."""
        places = torch.arange(layout.keys, device=k.device)
        own = places[layout.offset :, None]
        same = (buckets[..., layout.offset :, None] == buckets.unsqueeze(-2)) & (places <= own)  # (B, H, R, Tq, Tk)
        chunk = (same.cumsum(-1) - 1) // self.chunk  # of each token, among those of the query's bucket
        seen = (same & (chunk >= chunk[..., -1:] - 1)).any(2) & (places != own)
        seen = seen | (~seen.any(-1, keepdim=True) & (places == own))
        found = (q @ k.mT).masked_fill(~seen, -torch.inf).softmax(-1)
        return found @ v, lambda: found

    def hashed(self, k: Tensor, layout: AttentionLayout, ctx: Context) -> Tensor:
        """The corner argmax [k R; -k R] of each token in each round: (B, H, T, D) -> (B, H, R, T)."""
        halves, columns = self.directions(layout, k.device)
        # Drawn even where the answer is known: what is drawn after it must stay the same.
        rotations = self.draw(k, *columns)
        known = ctx.shared.get(SAVED_CHOICES, {})
        if ctx.path not in known:
            turned = (k.detach() @ rotations.flatten(2)).unflatten(-1, rotations.shape[2:])  # (B, H, T, R, columns)
            first, second = (corner(x, half) for x, half in zip(turned.split(columns, -1), halves, strict=True))
            found = (first + 2 * halves[0] * second).squeeze(-1).transpose(2, 3)  # (B, H, T, R, 1) -> (B, H, R, T)
            known[ctx.path] = found.short()  # which there may be one of for each layer
        return known[ctx.path].long()

    def directions(self, layout: AttentionLayout, device: torch.device) -> tuple[tuple[Any, ...], tuple[int, int]]:
        """How many directions a token's two corners are chosen from, and how many there must be for all tokens."""
        power = self.largest(layout)
        first, second = (corners // 2 for corners in CORNERS[power])
        if self.power is not None or (layout.keep is None and layout.key_segment is None):
            return (first, second), (first, second)
        powers = torch.bucketize(counted(layout), torch.tensor(self.ladder, device=device), right=True)
        halves = torch.tensor(CORNERS, device=device)[powers] // 2
        # (B, T or 1, 2) -> 2 x (B, 1, T or 1, 1, 1)
        return halves[:, None, :, None, None].unbind(-1), (min(2**power // 2, HALF), second)

    def largest(self, layout: AttentionLayout) -> int:
        """The logarithm of how many buckets there are, for a text without padding."""
        return self.power if self.power is not None else bisect_right(self.ladder, layout.keys)

    def draw(self, k: Tensor, first: int, second: int) -> Tensor:
        """Directions for both corners: (H, D, R, first + second)."""
        if self.training:
            return torch.randn(*self.rotations.shape[:3], first + second, dtype=k.dtype, device=k.device)
        fixed = self.rotations
        return torch.cat((fixed[..., :first], fixed[..., HALF : HALF + second]), dim=-1).to(k.dtype)


def corner(x: Tensor, half: Tensor | int) -> Tensor:
    """argmax [x; -x] over the first `half` channels: (..., C) -> (..., 1)."""
    if not x.shape[-1]:
        return torch.zeros(*x.shape[:-1], 1, dtype=torch.long, device=x.device)
    size = x.abs()
    if isinstance(half, Tensor):
        size = size.masked_fill(torch.arange(x.shape[-1], device=x.device) >= half, -1)
    best = size.argmax(-1, keepdim=True)
    return best + half * (x.gather(-1, best) < 0)


def apart(buckets: Tensor, layout: AttentionLayout) -> Tensor:
    """Buckets (B, H, R, T) of which no two documents share one, and padding in none of them."""
    if layout.key_segment is not None:
        buckets = buckets + 2**MOST * layout.key_segment[:, None, None]
    return buckets if layout.keep is None else buckets.masked_fill(~layout.keep[:, None, None], NOWHERE)


def counted(layout: AttentionLayout) -> Tensor:
    """How many real tokens a token's text has: (B, T), or (B, 1) where a row is one text."""
    segment, keep = layout.key_segment, layout.keep
    if segment is None:
        assert keep is not None
        return keep.sum(1, keepdim=True)
    real = torch.ones_like(segment) if keep is None else keep.to(segment.dtype)
    counts = segment.new_zeros(len(segment), segment.shape[1] + 1)
    return counts.scatter_add_(1, segment, real).gather(1, segment)


class LshConfig(QKVMixerConfig):
    """Attention among tokens of one bucket (Kitaev et al. 2020). Without `buckets` their number goes with the length,
    which a decoder cannot know while it writes: steps then differ from all tokens at once."""

    kind: Literal["lsh"] = "lsh"
    chunk: int = Field(64, ge=1)  # tokens of a bucket that see each other, and as many before them
    rounds: int = Field(4, ge=1)
    buckets: int = Field(0, ge=0, le=16_384)  # a power of two; 0: about 2 * length / chunk
    shortcuts: bool = False  # as the released codes: neighbours of other buckets seen, pairs counted in every round
    seed: int = Field(0, ge=0)  # of the rotations in evaluation

    @field_validator("buckets")
    @classmethod
    def _power(cls, buckets: int) -> int:
        if buckets & (buckets - 1) or buckets == 1:
            raise ValueError("the ends of random directions are 2, 4, 8, 16, ... buckets; choose one of these, or 0")
        return buckets

    def build(self, site: BuildContext) -> nn.Module:
        if self.shortcuts:
            site.must_look_ahead("lsh with shortcuts")
        return LSHAttention(
            **self.frame(site),
            chunk=self.chunk,
            rounds=self.rounds,
            buckets=self.buckets,
            shortcuts=self.shortcuts,
            seed=self.seed,
        )
