"""Score mods: attention masks (causal, sliding window, padding, packed documents) and relative positions (ALiBi, T5,
Shaw, rotary).

The padding mask and the document mask belong to every attention (they do nothing where a stream has neither); the
others are chosen.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.attention.inputs import AttentionInputs, AttentionLayout, ScoreMod


class Causal(ScoreMod):
    """The causal mask: masks later keys, j > i; a token always attends to itself."""

    may_mask_all = False

    def key(self) -> Any:
        return "causal"

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        if layout.queries == 1:
            return None  # the newest token: every key is in its past
        device = layout.key_pos.device if layout.key_pos is not None else None
        ones = torch.ones(layout.queries, layout.keys, dtype=torch.bool, device=device)
        return ones.triu(layout.offset + 1)


class Window(ScoreMod):
    """Sliding window attention: masks keys more than `left` before or `right` after the query."""

    needs_positions = True

    def __init__(self, left: int, right: int = 0):
        super().__init__()
        self.left = left
        self.right = right

    def key(self) -> Any:
        return "window", self.left, self.right

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        distance = layout.distance()
        return layout.expand_heads((distance < -self.left) | (distance > self.right))


class Padding(ScoreMod):
    """The padding mask: masks keys that are no real tokens."""

    def key(self) -> Any:
        return "padding"

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        return None if layout.keep is None else ~layout.keep[:, None, None, :]  # (B, 1, 1, Tk)


class Segments(ScoreMod):
    """The document mask of packed sequences: masks keys of other documents in the same row."""

    may_mask_all = False

    def key(self) -> Any:
        return "segments"

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        if layout.query_segment is None or layout.key_segment is None:
            return None
        return (layout.query_segment.unsqueeze(-1) != layout.key_segment.unsqueeze(-2)).unsqueeze(1)


ALWAYS = (Padding(), Segments())


def alibi_slopes(heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ... for n heads; between powers of two, every other slope of the next power.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    if power < heads:
        slopes += alibi_slopes(2 * power)[0::2][: heads - power]
    return slopes


class Alibi(ScoreMod):
    """ALiBi: the attention bias -slope_h * |j - i| of head h (Press et al. 2022)."""

    needs_positions = True

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)
        self.slopes: Tensor

    def key(self) -> Any:
        return "alibi", len(self.slopes)

    def bias(self, layout: AttentionLayout) -> Tensor:
        distance = layout.expand_heads(layout.distance().abs())
        return -self.slopes[:, None, None] * distance


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


class Rotary(ScoreMod):
    """Rotary position embedding (RoPE, Su et al. 2021): rotates each pair of channels by an angle that grows with the
    position, so that scores depend on distance alone. Channel i pairs with channel i + D/2."""

    needs_positions = True

    def __init__(self, head_width: int, base: float = 10_000.0):
        super().__init__()
        rates = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
        self.register_buffer("rates", rates.float(), persistent=False)
        self.rates: Tensor

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        angles = pos.unsqueeze(-1) * self.rates  # (T, D/2) or (B, T, D/2)
        angles = angles if angles.dim() == 2 else angles.unsqueeze(1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        one, two = x.chunk(2, dim=-1)
        return torch.cat((one * cos - two * sin, two * cos + one * sin), dim=-1)
