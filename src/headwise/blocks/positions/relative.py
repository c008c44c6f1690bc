"""Relative positions as score mods: Shaw, Transformer-XL, T5's relative position bias, DeBERTa's disentangled
attention.

Letters: B rows, H heads, D head_width, C width, Tq queries, Tk keys, N distances.

Those of DeBERTa and Transformer-XL are for self-attention: no distance is larger than the number of keys.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.attention.multihead import SelfProjection
from headwise.blocks.attention.score_mods import (
    QUERIES_AND_KEYS,
    AttentionInputs,
    AttentionLayout,
    ScoreMod,
    ScoreModConfig,
)
from headwise.blocks.norm import LayerNorm
from headwise.blocks.part import BuildContext, ScoreModBuilder
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.residual import make_dropout

Terms = tuple[Literal["c2p", "p2c"], ...]


def index_distances(inputs: AttentionInputs, negative: int, count: int) -> Tensor:
    """The index of the distance i - j of each query and key in a table of `count` distances, of which `negative` are
    below 0: (B, H, Tq, Tk). Distances outside the table take its nearest row."""
    return expand_index(inputs, -inputs.layout.compute_distance(), negative, count)


def expand_index(inputs: AttentionInputs, rows: Tensor, negative: int, count: int) -> Tensor:
    """Rows of a table, counted from its row `negative` on, as indices that stay inside it: (B, H, Tq, Tk)."""
    index = (negative + rows).clamp(0, count - 1)
    return inputs.layout.expand_heads(index).expand(*inputs.q.shape[:2], -1, -1)


def bucket_log_distances(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    """DeBERTa v2's bucket of a distance, with its sign: up to half of the buckets exact, then by the logarithm; about
    `buckets` at `max_distance`."""
    exact = buckets // 2
    # float32 as in the reference: the edges of buckets depend on its rounding
    scale = torch.log(distance.abs().clamp(min=exact).float() / exact)
    scale = scale / torch.log(torch.tensor((max_distance - 1) / exact))
    logarithmic = (torch.ceil(scale * (exact - 1)).long() + exact) * distance.sign()
    return torch.where(distance.abs() <= exact, distance, logarithmic)


class DistanceEmbedding(nn.Module):
    """The table of distances of disentangled attention: a vector for each distance below `max_distance` in both
    directions, or for each of `buckets` in both directions; with a norm where `eps` is above 0."""

    def __init__(self, width: int, max_distance: int = 512, buckets: int = 0, eps: float = 0.0):
        super().__init__()
        self.max_distance, self.buckets = max_distance, buckets
        self.table = nn.Embedding(2 * (buckets or max_distance), width)
        self.norm = LayerNorm(width, eps) if eps else nn.Identity()

    def forward(self, inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
        """The vectors (N, C) that these queries and keys may need, and the row of each pair: (B, H, Tq, Tk)."""
        if self.buckets:
            rows = bucket_log_distances(-inputs.layout.compute_distance(), self.buckets, self.max_distance)
            return self.norm(self.table.weight), expand_index(inputs, rows, self.buckets, 2 * self.buckets)
        span = min(inputs.layout.keys, self.max_distance)  # a short text has no larger distances
        rows = torch.arange(self.max_distance - span, self.max_distance + span, device=inputs.q.device)
        return self.norm(self.table(rows)), index_distances(inputs, span, 2 * span)


class DisentangledAttention(ScoreMod):
    """Disentangled attention: e_ij = (q_i k_j + q_i Kr[d] + k_j Qr[d]) / sqrt(3 D) with d = clip(i - j + k, 0, 2k - 1):
    content-to-content, content-to-position, position-to-content (He et al. 2021, equation 4). Kr and Qr are projections
    of one table of distances, which all layers share. `terms` may leave out one of the two: "c2p" or "p2c".

    DISCREPANCY: the paper prints d(j, i) in the last term; both released implementations use d(i, j), and so do we.
    """

    needs_positions = True
    reads = QUERIES_AND_KEYS

    def __init__(
        self,
        distances: DistanceEmbedding,
        heads: int,
        head_width: int,
        dropout: float = 0.0,
        terms: Terms = ("c2p", "p2c"),
        key_bias: bool = False,
    ):
        super().__init__()
        self.table, self.norm = distances.table, distances.norm
        self.distances, self.heads, self.terms = [distances], heads, terms  # in a list: its parameters are those above
        self.drop = make_dropout(dropout)
        self.build_projections(self.table.embedding_dim, heads * head_width, key_bias)

    def build_projections(self, width: int, out: int, key_bias: bool) -> None:
        self.keys = nn.Linear(width, out, key_bias) if "c2p" in self.terms else None
        self.queries = nn.Linear(width, out) if "p2c" in self.terms else None

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        vectors, index = self.distances[0](inputs)  # (N, C), (B, H, Tq, Tk)
        keys, queries = self.project_distances(self.drop(vectors), inputs)
        # (B, H, Tq, D) @ (H, D, N) -> (B, H, Tq, N) -> (B, H, Tq, Tk); the second in (B, H, Tk, Tq)
        if keys is not None:
            scores = scores + inputs.scale * (inputs.q @ keys.mT).gather(-1, index)
        if queries is not None:
            scores = scores + inputs.scale * (inputs.k @ queries.mT).gather(-1, index.mT).mT
        return scores * (1 + len(self.terms)) ** -0.5

    def project_distances(self, vectors: Tensor, inputs: AttentionInputs) -> tuple[Tensor | None, Tensor | None]:
        """Keys Kr and queries Qr of the distances, (N, C) -> (H, N, D); None: a term that is left out."""
        keys, queries = (
            None if project is None else project(vectors).unflatten(-1, (self.heads, -1)).transpose(0, 1)
            for project in (self.keys, self.queries)
        )
        return keys, queries


class SharedDisentangledAttention(DisentangledAttention):
    """Disentangled attention whose distances are projected as the tokens are (DeBERTa v3, He et al. 2021b: "share
    attention keys"), so that it has no projections of its own."""

    def build_projections(self, width: int, out: int, key_bias: bool) -> None:
        self.keys = self.queries = None

    def project_distances(self, vectors: Tensor, inputs: AttentionInputs) -> tuple[Tensor | None, Tensor | None]:
        assert isinstance(inputs.qkv, SelfProjection)
        q, k, _ = inputs.qkv.split(inputs.qkv.project(vectors.unsqueeze(0)))  # (1, N, C) -> 3 x (1, H, N, D)
        return (
            inputs.qkv.repeat_kv(k)[0] if "c2p" in self.terms else None,
            q[0] if "p2c" in self.terms else None,
        )


class DistanceSinusoids(nn.Module):
    """Sinusoids of the distances 0, 1, 2 ... to earlier tokens; `both_ways`: of the negative ones to later tokens too,
    in front. Without parameters, for any length."""

    def __init__(self, width: int, both_ways: bool, cached: int = 512):
        super().__init__()
        self.width, self.both_ways, self.cached = width, both_ways, cached
        self.register_buffer("table", self._build_table(cached), persistent=False)  # precomputed rows, not a limit
        self.table: Tensor

    def forward(self, max_distance: int) -> Tensor:
        """The sinusoids of all distances up to `max_distance`, from the smallest on: (N, C)."""
        if max_distance > self.cached:
            return self._build_table(max_distance, self.table.device).to(self.table.dtype)
        middle = self.cached if self.both_ways else 0
        return self.table[middle - self.count_negative(max_distance) : middle + max_distance + 1]

    def count_negative(self, max_distance: int) -> int:
        """The number of distances below 0."""
        return max_distance if self.both_ways else 0

    def _build_table(self, max_distance: int, device: torch.device | None = None) -> Tensor:
        distances = torch.arange(-self.count_negative(max_distance), max_distance + 1, device=device)
        return build_sinusoids(distances, self.width, halves=True).to(torch.get_default_dtype())


class ContentBiases(nn.Module):
    """The biases u and v of Transformer-XL, which every query adds for contents and for distances."""

    def __init__(self, heads: int, head_width: int):
        super().__init__()
        self.content = nn.Parameter(torch.randn(heads, 1, head_width) * 0.02)
        self.distance = nn.Parameter(torch.randn(heads, 1, head_width) * 0.02)


class TransformerXLRelative(ScoreMod):
    """Relative positions of Transformer-XL: e_ij = ((q_i + u) k_j + (q_i + v) W PE(i - j)) / sqrt(D) (Dai et al. 2019,
    section 3.3). Each layer has its W; all share u and v. As in the code released with the paper, PE has all sines
    first."""

    needs_positions = True
    reads = QUERIES_AND_KEYS

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        distances: DistanceSinusoids,
        leanings: ContentBiases,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.distances, self.leanings = distances, leanings
        self.project = nn.Linear(width, heads * head_width, bias=False)
        self.drop = make_dropout(dropout)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        max_distance = inputs.layout.keys - 1
        sinusoids = self.drop(self.distances(max_distance))  # (N, C)
        index = index_distances(inputs, self.distances.count_negative(max_distance), len(sinusoids))
        by_distance = self._score_distances(inputs.q + self.leanings.distance, sinusoids)  # (B, H, Tq, N)
        by_content = self.leanings.content @ inputs.k.mT  # (H, 1, D) and (B, H, D, Tk) -> (B, H, 1, Tk)
        return scores + inputs.scale * (by_content + by_distance.gather(-1, index))

    def _score_distances(self, q: Tensor, sinusoids: Tensor) -> Tensor:
        """q W PE: (B, H, Tq, D) -> (B, H, Tq, N), in the order of products that takes fewer multiplications."""
        rows, heads, queries, head_width = q.shape
        weight = self.project.weight.view(heads, head_width, -1)  # (H * D, C) -> (H, D, C)
        count, width = sinusoids.shape
        queries_first = rows * queries * width * (head_width + count)
        sinusoids_first = count * head_width * (width + rows * queries)
        if queries_first < sinusoids_first:
            return (q @ weight) @ sinusoids.t()
        return q @ (weight @ sinusoids.t())


def bucket_distances(distance: Tensor, buckets: int = 32, max_distance: int = 128, both_ways: bool = True) -> Tensor:
    """T5's relative position bucket of a distance j - i: small ones exact, large ones by their logarithm."""
    first = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        first = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    # float32 as in the reference: the edges of buckets depend on its rounding
    scale = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    logarithmic = (exact + (scale * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, logarithmic)


class T5Bias(ScoreMod):
    """T5's relative position bias: a learned scalar for each head and bucket of distance, shared by all layers of a
    stack (Raffel et al. 2020)."""

    needs_positions = True

    def __init__(self, heads: int, buckets: int = 32, max_distance: int = 128, both_ways: bool = True):
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets = buckets
        self.max_distance = max_distance
        self.both_ways = both_ways

    def bias(self, layout: AttentionLayout) -> Tensor:
        index = bucket_distances(layout.compute_distance(), self.buckets, self.max_distance, self.both_ways)
        return self.table(index).movedim(-1, -3)  # (..., Tq, Tk, H) -> (..., H, Tq, Tk)


class ShawRelative(ScoreMod):
    """Relative position representations (Shaw et al. 2018): e_ij = q_i (k_j + a_ij)^T / sqrt(D) and z_i = sum_j w_ij
    (v_j + b_ij), with a_ij and b_ij looked up by the clipped distance j - i and shared over heads."""

    needs_positions = True
    reads = frozenset(("queries",))

    def __init__(self, head_width: int, max_distance: int = 16):
        super().__init__()
        self.max_distance = max_distance
        self.keys = nn.Parameter(torch.randn(2 * max_distance + 1, head_width) * head_width**-0.5)
        self.values = nn.Parameter(torch.randn(2 * max_distance + 1, head_width) * head_width**-0.5)

    def _index_distances(self, inputs: AttentionInputs) -> Tensor:
        distance = inputs.layout.compute_distance().clamp(-self.max_distance, self.max_distance) + self.max_distance
        return inputs.layout.expand_heads(distance).expand(inputs.q.shape[:2] + distance.shape[-2:])  # (B, H, Tq, Tk)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        by_distance = inputs.q @ self.keys.t() * inputs.scale  # (B, H, Tq, 2k+1)
        return scores + by_distance.gather(-1, self._index_distances(inputs))

    def add_values(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        by_distance = weights.new_zeros(*weights.shape[:-1], len(self.values))
        by_distance = by_distance.scatter_add(-1, self._index_distances(inputs), weights)  # (B, H, Tq, 2k+1)
        return by_distance @ self.values


class T5BiasConfig(ScoreModConfig):
    """T5's relative position bias. As the positions of a stack, all layers (of as many heads) share one table."""

    kind: Literal["t5"] = "t5"
    buckets: int = Field(32, ge=4)
    max_distance: int = Field(128, ge=2)

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        return T5Bias(build_ctx.heads, self.buckets, self.max_distance, both_ways=not build_ctx.causal)

    def make_score_mod_builder(self, build_ctx: BuildContext) -> ScoreModBuilder:
        shared = cache(lambda heads: (self.build(replace(build_ctx, heads=heads), 0),))
        return lambda heads, head_width: shared(heads)


class ShawRelativeConfig(ScoreModConfig):
    """Shaw's relative position representations, up to `max_distance`."""

    kind: Literal["shaw"] = "shaw"
    max_distance: int = Field(16, ge=1)

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        return ShawRelative(head_width, self.max_distance)


class DisentangledAttentionConfig(PositionConfig):
    """DeBERTa's disentangled attention: one table of distances for a stack, projected by each layer."""

    kind: Literal["deberta"] = "deberta"
    max_distance: int = Field(512, ge=1)
    buckets: int = Field(0, ge=0)  # logarithmic buckets of distances in each direction (DeBERTa v2); 0: none
    terms: Terms = ("c2p", "p2c")  # content-to-position and position-to-content
    shared: bool = False  # distances are projected by the layer's projections of queries and keys (DeBERTa v3)
    key_bias: bool = False  # of the projection of distances to keys
    norm_eps: float = Field(0.0, ge=0)  # of a LayerNorm of the table; 0: no norm

    @model_validator(mode="after")
    def _check_buckets(self) -> Self:
        if self.buckets and (self.buckets < 2 or self.max_distance - 1 <= self.buckets // 2):
            raise ValueError("buckets: must be at least 2, and half of them fewer than max_distance - 1")
        if len(set(self.terms)) != len(self.terms):
            raise ValueError("terms: each can stand there once")
        return self

    def make_score_mod_builder(self, build_ctx: BuildContext) -> ScoreModBuilder:
        distances = cache(lambda: DistanceEmbedding(build_ctx.width, self.max_distance, self.buckets, self.norm_eps))
        kind = SharedDisentangledAttention if self.shared else DisentangledAttention
        return lambda heads, head_width: (
            kind(distances(), heads, head_width, build_ctx.dropout, self.terms, self.key_bias),
        )


class TransformerXLRelativeConfig(PositionConfig):
    """Transformer-XL's relative positions: sinusoids of distances, projected by each layer. `shared`: all layers (of as
    many heads) share the biases u and v."""

    kind: Literal["transformer_xl"] = "transformer_xl"
    shared: bool = True

    def make_score_mod_builder(self, build_ctx: BuildContext) -> ScoreModBuilder:
        distances = cache(lambda: DistanceSinusoids(build_ctx.width, both_ways=not build_ctx.causal))
        build_biases = cache(ContentBiases) if self.shared else ContentBiases
        return lambda heads, head_width: (
            TransformerXLRelative(
                build_ctx.width,
                heads,
                head_width,
                distances(),
                build_biases(heads, head_width),
                dropout=build_ctx.dropout,
            ),
        )
