"""Score mods with learned vectors of distances: DeBERTa's and Transformer-XL's.

Letters: B rows, H heads, D head_width, C width, Tq queries, Tk keys, N distances.

Both take tokens of one sequence, of which no two are further apart than there are keys.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import BOTH, AttentionInputs, AttentionLayout, ScoreMod, ScoreModConfig
from headwise.blocks.part import BuildContext, ScoreMods
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.residual import make_dropout


def places(inputs: AttentionInputs, before: int, count: int) -> Tensor:
    """Where the distance i - j of each query and key stands among `count`, of which `before` are negative:
    (B, H, Tq, Tk). One that is not among them takes the nearest."""
    where = (before - inputs.layout.distance()).clamp(0, count - 1)
    return inputs.layout.expand_heads(where).expand(*inputs.q.shape[:2], -1, -1)


class DisentangledAttention(ScoreMod):
    """Disentangled attention: e_ij = (q_i k_j + q_i Kr[d] + k_j Qr[d]) / sqrt(3 D) with d = clip(i - j + k, 0, 2k - 1):
    content to content, content to place, place to content (He et al. 2021, equation 4). Kr and Qr are made of one table
    of distances, which all layers share.

    DISCREPANCY: the paper prints d(j, i) in the last part; both released implementations use d(i, j), and so do we.
    """

    needs_positions = True
    reads = BOTH

    def __init__(self, table: nn.Embedding, heads: int, head_width: int, dropout: float = 0.0):
        super().__init__()
        self.table = table  # (2k, C)
        self.heads = heads
        self.keys = nn.Linear(table.embedding_dim, heads * head_width, bias=False)
        self.queries = nn.Linear(table.embedding_dim, heads * head_width)
        self.drop = make_dropout(dropout)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        max_distance = self.table.num_embeddings // 2
        span = min(inputs.layout.keys, max_distance)  # no distance of a short text needs the others
        steps = self.drop(
            self.table(torch.arange(max_distance - span, max_distance + span, device=scores.device))
        )  # (N, C)
        where = places(inputs, span, 2 * span)
        to_place = (inputs.q @ self._split(self.keys(steps))).gather(-1, where)
        from_place = (inputs.k @ self._split(self.queries(steps))).gather(-1, where.mT).mT  # (B, H, Tk, Tq) -> back
        return (scores + inputs.scale * (to_place + from_place)) * 3**-0.5

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).permute(1, 2, 0)  # (N, H * D) -> (H, D, N)


class DistanceSinusoids(nn.Module):
    """Sinusoids of the distances 0, 1, 2 ... to earlier tokens, and `both_ways` of the negative ones to later tokens
    before them. Nothing to learn, any length."""

    def __init__(self, width: int, both_ways: bool, ready: int = 512):
        super().__init__()
        self.width, self.both_ways, self.ready = width, both_ways, ready
        self.register_buffer("table", self._made(ready), persistent=False)  # a store of the first, not a limit
        self.table: Tensor

    def forward(self, max_distance: int) -> Tensor:
        """Of all distances up to `max_distance`, from the smallest on: (N, C)."""
        if max_distance > self.ready:
            return self._made(max_distance, self.table.device).to(self.table.dtype)
        middle = self.ready if self.both_ways else 0
        return self.table[middle - self.negative(max_distance) : middle + max_distance + 1]

    def negative(self, max_distance: int) -> int:
        """How many distances stand before 0."""
        return max_distance if self.both_ways else 0

    def _made(self, max_distance: int, device: torch.device | None = None) -> Tensor:
        distances = torch.arange(-self.negative(max_distance), max_distance + 1, device=device)
        return build_sinusoids(distances, self.width, halves=True).to(torch.get_default_dtype())


class ContentBiases(nn.Module):
    """What every query leans to, whatever it is: towards some contents and towards some distances."""

    def __init__(self, heads: int, head_width: int):
        super().__init__()
        self.content = nn.Parameter(torch.randn(heads, 1, head_width) * 0.02)
        self.distance = nn.Parameter(torch.randn(heads, 1, head_width) * 0.02)


class TransformerXLRelative(ScoreMod):
    """e_ij = ((q_i + u) k_j + (q_i + v) W PE(i - j)) / sqrt(D) (Dai et al. 2019, section 3.3). W belongs to a layer, u
    and v to all of them. As in the code released with the paper, all sines of PE stand before the cosines."""

    needs_positions = True
    reads = BOTH

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
        steps = self.drop(self.distances(max_distance))  # (N, C)
        where = places(inputs, self.distances.negative(max_distance), len(steps))
        by_distance = self._by_distance(inputs.q + self.leanings.distance, steps)  # (B, H, Tq, N)
        by_content = self.leanings.content @ inputs.k.mT  # (H, 1, D) and (B, H, D, Tk) -> (B, H, 1, Tk)
        return scores + inputs.scale * (by_content + by_distance.gather(-1, where))

    def _by_distance(self, q: Tensor, steps: Tensor) -> Tensor:
        """(B, H, Tq, D) W PE -> (B, H, Tq, N), in the order that multiplies less: few queries meet W first."""
        rows, heads, queries, head_width = q.shape
        weight = self.project.weight.view(heads, head_width, -1)  # (H * D, C) -> (H, D, C)
        count, width = steps.shape
        queries_first = rows * queries * width * (head_width + count)
        steps_first = count * head_width * (width + rows * queries)
        if queries_first < steps_first:
            return (q @ weight) @ steps.t()
        return q @ (weight @ steps.t())


def bucket_distances(distance: Tensor, buckets: int = 32, max_distance: int = 128, both_ways: bool = True) -> Tensor:
    """T5's relative position bucket of a distance j - i: near ones exact, far ones by their logarithm."""
    base = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        base = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    # float32 on purpose: the reference rounds there, and the buckets' edges depend on it
    scale = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (scale * (buckets - exact)).long()).clamp(max=buckets - 1)
    return base + torch.where(distance < exact, distance, far)


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
        where = bucket_distances(layout.distance(), self.buckets, self.max_distance, self.both_ways)
        return self.table(where).movedim(-1, -3)  # (..., Tq, Tk, H) -> (..., H, Tq, Tk)


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

    def _where(self, inputs: AttentionInputs) -> Tensor:
        distance = inputs.layout.distance().clamp(-self.max_distance, self.max_distance) + self.max_distance
        return inputs.layout.expand_heads(distance).expand(inputs.q.shape[:2] + distance.shape[-2:])  # (B, H, Tq, Tk)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        by_distance = inputs.q @ self.keys.t() * inputs.scale  # (B, H, Tq, 2k+1)
        return scores + by_distance.gather(-1, self._where(inputs))

    def add_values(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        by_distance = weights.new_zeros(*weights.shape[:-1], len(self.values))
        by_distance = by_distance.scatter_add(-1, self._where(inputs), weights)  # (B, H, Tq, 2k+1)
        return by_distance @ self.values


class T5BiasConfig(ScoreModConfig):
    """T5's relative bias. As the positions of a stack, all its layers (of as many heads) share one table."""

    kind: Literal["t5"] = "t5"
    buckets: int = Field(32, ge=4)
    max_distance: int = Field(128, ge=2)

    def build(self, site: BuildContext, head_width: int) -> ScoreMod:
        return T5Bias(site.heads, self.buckets, self.max_distance, both_ways=not site.causal)

    def score_mods(self, site: BuildContext) -> ScoreMods:
        shared = cache(lambda heads: (self.build(replace(site, heads=heads), 0),))
        return lambda heads, head_width: shared(heads)


class ShawRelativeConfig(ScoreModConfig):
    kind: Literal["shaw"] = "shaw"
    max_distance: int = Field(16, ge=1)

    def build(self, site: BuildContext, head_width: int) -> ScoreMod:
        return ShawRelative(head_width, self.max_distance)


class DisentangledAttentionConfig(PositionConfig):
    """DeBERTa's: one table of distances for all layers of a stack, of which each makes keys and queries."""

    kind: Literal["deberta"] = "deberta"
    max_distance: int = Field(512, ge=1)

    def score_mods(self, site: BuildContext) -> ScoreMods:
        table = cache(lambda: nn.Embedding(2 * self.max_distance, site.width))
        return lambda heads, head_width: (DisentangledAttention(table(), heads, head_width, site.dropout),)


class TransformerXLRelativeConfig(PositionConfig):
    """Transformer-XL's: sinusoids of distances, projected by each layer. `shared`: all layers (of as many heads) lean
    to the same contents and distances."""

    kind: Literal["transformer_xl"] = "transformer_xl"
    shared: bool = True

    def score_mods(self, site: BuildContext) -> ScoreMods:
        distances = cache(lambda: DistanceSinusoids(site.width, both_ways=not site.causal))
        leanings = cache(ContentBiases) if self.shared else ContentBiases
        return lambda heads, head_width: (
            TransformerXLRelative(
                site.width, heads, head_width, distances(), leanings(heads, head_width), dropout=site.dropout
            ),
        )
