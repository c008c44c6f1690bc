"""LSH attention: each token attends to tokens of the same hash bucket (Kitaev et al. 2020, "Reformer: The Efficient
Transformer").

Queries are keys, so similar tokens get the same hash: in each round a random rotation R assigns a token to one of
`buckets` buckets, argmax [k R; -k R]. The attention inside buckets is in `blocks/mixers/lsh_kernel.py`.

DISCREPANCY: paper and trax sort tokens by bucket and cut them into chunks regardless of bucket borders. In a decoder
that leaks the future: a later token in another bucket moves the borders. Here each bucket of a decoder starts a new
chunk.
DISCREPANCY: trax, transformers and reformer-pytorch let tokens of different buckets attend to each other where they
share chunks, and count a pair in each round in which it shares a bucket (`shortcuts`). The paper does neither, and so
do we.
DISCREPANCY: reformer-pytorch divides scores by sqrt(D) although keys have length 1; the paper's code does not.

Letters: B rows, H heads, R hash rounds, T length, D head_width.
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
from headwise.blocks.attention.score_mods import BASE_MASKS, ApproximateMap, AttentionInputs, AttentionLayout, ScoreMod
from headwise.blocks.losses import get_matmul_dtype
from headwise.blocks.mixers.lsh_kernel import PAD_BUCKET, LSHAttentionFunction, SortedChunks, compute_map
from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.reversible import SAVED_CHOICES
from headwise.blocks.stream import Context, Properties, Stream

MAX_LOG2_BUCKETS = 14
MAX_LOG2_SINGLE = 7  # above it, a bucket is a pair of hashes, each with about the square root of the buckets
FACTORS = [
    (2**p, 1) if p <= MAX_LOG2_SINGLE else (2 ** (p // 2), 2 ** (p - p // 2)) for p in range(MAX_LOG2_BUCKETS + 1)
]
MAX_DIRECTIONS = 2**MAX_LOG2_SINGLE // 2  # of each hash; a direction and its negative are two buckets

Mixed = tuple[Tensor, Callable[[], Tensor]]  # outputs (B, H, Tq, D), and the function that computes their map


class SharedQKProjection(SelfProjection):
    """Shared-QK projection: keys are queries of length 1, k = q / |q| (section 2)."""

    roles = ("queries", "values")

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        # (B, T, 2HD) -> (B, T, 2, H, D) -> 2 x (B, H, T, D)
        q, v = fused.view(*fused.shape[:2], 2, self.heads, self.head_width).permute(2, 0, 3, 1, 4).unbind(0)
        k = F.rms_norm(q, (self.head_width,), eps=1e-6) * self.head_width**-0.5
        return q, k.to(q.dtype), v

    def build_layout(self, stream: Stream, ctx: Context, keys: int) -> AttentionLayout:
        """The layout of the stream's queries and all keys so far."""
        return self._extend_layout(stream, ctx, keys, needs_positions=False)


class NotSelf(ScoreMod):
    """Mask the token itself, whose score would exceed all others, unless it has no other key, as the first of a causal
    text."""

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
    """LSH attention: attention by locality-sensitive hashing, softmax over the keys that share a bucket with the query
    in some hash round, in chunks of `chunk` tokens.

    The number of buckets is `buckets`, or the power of two below 2 n / chunk for a text of n tokens, or 1 if it fits a
    chunk. Rotations are redrawn in each forward pass of training; in evaluation they are those of `seed`.

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
        **settings: Any,
    ):
        super().__init__(width, heads, **settings)
        self.chunk, self.rounds, self.shortcuts = chunk, rounds, shortcuts
        self.log2_buckets = buckets.bit_length() - 1 if buckets else None  # None: by the length
        self.thresholds = [
            chunk + 1,
            *(chunk << p for p in range(1, MAX_LOG2_BUCKETS)),
        ]  # lengths for 2, 4, 8 ... buckets
        self.register_buffer("boundaries", torch.tensor(self.thresholds), persistent=False)
        self.register_buffer("factors", torch.tensor(FACTORS), persistent=False)
        self.boundaries: Tensor
        self.factors: Tensor
        generator = torch.Generator("cpu").manual_seed(seed)
        shape = (self.heads, self.head_width, rounds)
        rotations = torch.empty(*shape, 2 * MAX_DIRECTIONS)
        if shortcuts and buckets:  # as transformers draws those of a `hash_seed`
            halves = [count // 2 for count in FACTORS[buckets.bit_length() - 1]]
            drawn = torch.randn(*shape, sum(halves), generator=generator, device="cpu").split(halves, -1)
            for start, directions in zip((0, MAX_DIRECTIONS), drawn, strict=True):
                rotations[..., start : start + directions.shape[-1]] = directions
        else:
            rotations.copy_(torch.randn(rotations.shape, generator=generator, device="cpu"))
        self.register_buffer("rotations", rotations, persistent=False)
        self.rotations: Tensor
        self.qkv: SharedQKProjection

    def build_projection(self, width: int, bias: bool) -> SharedQKProjection:
        return SharedQKProjection(width, self.heads, self.head_width, bias)

    @property
    def properties(self) -> Properties:
        """A decoder knows neither its padding nor its final length, on which the number of buckets depends."""
        causal, fixed = self.causal and not self.shortcuts, self.log2_buckets is not None
        padding = not self.shortcuts and (fixed or not self.causal)
        steppable = causal and fixed
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
        if self.log2_buckets is None:
            k, v = ctx.cache.extend(ctx.path, 2, k, v)
            layout = self.qkv.build_layout(stream, ctx, k.shape[2])
            buckets = self.compute_buckets(k, layout, ctx)
        else:
            # (B, H, R, T) -> (B, H, T, R)
            new_buckets = self.compute_buckets(k, AttentionLayout(new, new), ctx).transpose(2, 3)
            k, v, all_buckets = ctx.cache.extend(ctx.path, 2, k, v, new_buckets)
            layout, buckets = self.qkv.build_layout(stream, ctx, k.shape[2]), all_buckets.transpose(2, 3)
        decoding = self.log2_buckets is not None and new < layout.keys
        attend = self.attend_newest if decoding else self.attend_chunks
        out, implied = attend(q, k, v, separate_documents(buckets, layout), layout)

        def exact() -> AttentionInputs:
            return AttentionInputs(q, k, v, 1.0, layout, (NotSelf(self.causal), *BASE_MASKS))

        ctx.record.observe(ctx.path, ApproximateMap(implied, exact))
        return out

    def attend_chunks(self, q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, layout: AttentionLayout) -> Mixed:
        """Attention of all tokens, in chunks. Cached tokens have zero queries, whose outputs are dropped."""
        # One more for padding; packed documents have buckets of their own, so that their number is unknown.
        max_buckets = 2 ** self.get_log2_buckets(layout) + 1 if layout.key_segment is None else 0
        chunks = SortedChunks.from_buckets(buckets, self.chunk, self.causal, self.shortcuts, max_buckets)
        low = get_matmul_dtype(self.out.weight)
        q = F.pad(q, (0, 0, layout.offset, 0)) if layout.offset else q
        queries, keys, values = (x.flatten(0, 1).to(low) for x in (q, k, v))  # (B, H, T, D) -> (Z, T, D)
        out, z = LSHAttentionFunction.apply(queries, keys, values, chunks)

        def implied() -> Tensor:
            return compute_map(queries, keys, z, chunks).unflatten(0, q.shape[:2])[:, :, layout.offset :]

        return out.view(v.shape)[:, :, layout.offset :], implied  # (Z, T, D) -> (B, H, T, D)

    def attend_newest(self, q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, layout: AttentionLayout) -> Mixed:
        """Attention of the newest tokens alone while decoding, which needs no sorting."""
        keys = torch.arange(layout.keys, device=k.device)
        queries = keys[layout.offset :, None]
        same_bucket = buckets[..., layout.offset :, None] == buckets.unsqueeze(-2)  # (B, H, R, Tq, Tk)
        same_bucket = same_bucket & (keys <= queries)
        chunk = (same_bucket.cumsum(-1) - 1) // self.chunk  # of each key, among those of the query's bucket
        visible = (same_bucket & (chunk >= chunk[..., -1:] - 1)).any(2) & (keys != queries)
        visible = visible | (~visible.any(-1, keepdim=True) & (keys == queries))
        weights = (q @ k.mT).masked_fill(~visible, -torch.inf).softmax(-1)
        return weights @ v, lambda: weights

    def compute_buckets(self, k: Tensor, layout: AttentionLayout, ctx: Context) -> Tensor:
        """The bucket argmax [k R; -k R] of each token in each hash round: (B, H, T, D) -> (B, H, R, T)."""
        counts, columns = self.count_directions(layout)
        # Drawn even if the buckets are saved, so that later draws of the recomputation stay the same.
        rotations = self.draw_rotations(k, *columns)
        saved = ctx.shared.get(SAVED_CHOICES, {})
        if ctx.path not in saved:
            rotated = (k.detach() @ rotations.flatten(2)).unflatten(-1, rotations.shape[2:])  # (B, H, T, R, columns)
            first, second = (find_nearest(x, n) for x, n in zip(rotated.split(columns, -1), counts, strict=True))
            buckets = (first + 2 * counts[0] * second).squeeze(-1).transpose(2, 3)  # (B, H, T, R, 1) -> (B, H, R, T)
            saved[ctx.path] = buckets.short()  # of every layer, if layers are reversible
        return saved[ctx.path].long()

    def count_directions(self, layout: AttentionLayout) -> tuple[tuple[Any, ...], tuple[int, int]]:
        """The numbers of directions of both hashes, for each text where lengths differ; and the largest ones."""
        log2_buckets = self.get_log2_buckets(layout)
        first, second = (buckets // 2 for buckets in FACTORS[log2_buckets])
        if self.log2_buckets is not None or (layout.keep is None and layout.key_segment is None):
            return (first, second), (first, second)
        counts = self.factors[torch.bucketize(count_tokens(layout), self.boundaries, right=True)] // 2
        # (B, T or 1, 2) -> 2 x (B, 1, T or 1, 1, 1)
        return counts[:, None, :, None, None].unbind(-1), (min(2**log2_buckets // 2, MAX_DIRECTIONS), second)

    def get_log2_buckets(self, layout: AttentionLayout) -> int:
        """The logarithm of the number of buckets of a text without padding."""
        return self.log2_buckets if self.log2_buckets is not None else bisect_right(self.thresholds, layout.keys)

    def draw_rotations(self, k: Tensor, first: int, second: int) -> Tensor:
        """Directions of both hashes: (H, D, R, first + second)."""
        if self.training:
            return torch.randn(*self.rotations.shape[:3], first + second, dtype=k.dtype, device=k.device)
        fixed = self.rotations
        return torch.cat((fixed[..., :first], fixed[..., MAX_DIRECTIONS : MAX_DIRECTIONS + second]), dim=-1).to(k.dtype)


def find_nearest(x: Tensor, count: Tensor | int) -> Tensor:
    """argmax [x; -x] over the first `count` channels: (..., C) -> (..., 1)."""
    if not x.shape[-1]:
        return torch.zeros(*x.shape[:-1], 1, dtype=torch.long, device=x.device)
    size = x.abs()
    if isinstance(count, Tensor):
        size = size.masked_fill(torch.arange(x.shape[-1], device=x.device) >= count, -1)
    best = size.argmax(-1, keepdim=True)
    return best + count * (x.gather(-1, best) < 0)


def separate_documents(buckets: Tensor, layout: AttentionLayout) -> Tensor:
    """Buckets (B, H, R, T) that no two packed documents share, and the pad bucket for padding."""
    if layout.key_segment is not None:
        buckets = buckets + 2**MAX_LOG2_BUCKETS * layout.key_segment[:, None, None]
    return buckets if layout.keep is None else buckets.masked_fill(~layout.keep[:, None, None], PAD_BUCKET)


def count_tokens(layout: AttentionLayout) -> Tensor:
    """Real tokens of the text of each token: (B, T), or (B, 1) where a row is one text."""
    segment, keep = layout.key_segment, layout.keep
    if segment is None:
        assert keep is not None
        return keep.sum(1, keepdim=True)
    real = torch.ones_like(segment) if keep is None else keep.to(segment.dtype)
    counts = segment.new_zeros(len(segment), segment.shape[1] + 1)
    return counts.scatter_add_(1, segment, real).gather(1, segment)


class LshConfig(QKVMixerConfig):
    """LSH attention (Kitaev et al. 2020). Without `buckets` their number depends on the length, which a decoder does
    not know while it generates: decoding step by step then differs from one forward pass."""

    kind: Literal["lsh"] = "lsh"
    chunk: int = Field(64, ge=1)  # tokens of a chunk, which attends to itself and the chunk before it
    rounds: int = Field(4, ge=1)  # hash rounds
    buckets: int = Field(0, ge=0, le=16_384)  # a power of two; 0: about 2 * length / chunk
    shortcuts: bool = False  # as the released codes: attend across buckets within chunks, count pairs in every round
    seed: int = Field(0, ge=0)  # of the rotations in evaluation

    @field_validator("buckets")
    @classmethod
    def _check_power_of_two(cls, buckets: int) -> int:
        if buckets & (buckets - 1) or buckets == 1:
            raise ValueError("must be a power of two (2, 4, 8, 16, ...), or 0 for a number that depends on the length")
        return buckets

    def build(self, build_ctx: BuildContext) -> nn.Module:
        if self.shortcuts:
            build_ctx.refuse_causal("lsh with shortcuts")
        return LSHAttention(
            **self.resolve_arguments(build_ctx),
            chunk=self.chunk,
            rounds=self.rounds,
            buckets=self.buckets,
            shortcuts=self.shortcuts,
            seed=self.seed,
        )
