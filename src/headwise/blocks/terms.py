"""Score terms: what may be seen, and how distance counts.

Padding and Segments belong to every attention (they do nothing where a stream has neither); the others are chosen.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.look import Look, Sight, Term


class Causal(Term):
    """Hide later keys, j > i; a token always sees itself (B5)."""

    blinds = False

    def key(self) -> Any:
        return "causal"

    def hide(self, sight: Sight) -> Tensor | None:
        if sight.queries == 1:
            return None  # the newest token: everything before it is past
        device = sight.key_pos.device if sight.key_pos is not None else None
        ones = torch.ones(sight.queries, sight.keys, dtype=torch.bool, device=device)
        return ones.triu(sight.offset + 1)


class Window(Term):
    """Hide keys more than `left` before or `right` after the query."""

    needs_positions = True

    def __init__(self, left: int, right: int = 0):
        super().__init__()
        self.left = left
        self.right = right

    def key(self) -> Any:
        return "window", self.left, self.right

    def hide(self, sight: Sight) -> Tensor | None:
        distance = sight.distance()
        return sight.over_heads((distance < -self.left) | (distance > self.right))


class Padding(Term):
    """Hide keys that are no real tokens."""

    def key(self) -> Any:
        return "padding"

    def hide(self, sight: Sight) -> Tensor | None:
        return None if sight.keep is None else ~sight.keep[:, None, None, :]  # (B, 1, 1, Tk)


class Segments(Term):
    """Hide keys of other documents packed into the same row."""

    blinds = False

    def key(self) -> Any:
        return "segments"

    def hide(self, sight: Sight) -> Tensor | None:
        if sight.query_segment is None or sight.key_segment is None:
            return None
        return (sight.query_segment.unsqueeze(-1) != sight.key_segment.unsqueeze(-2)).unsqueeze(1)


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


class Alibi(Term):
    """-slope_h * |j - i| added to the scores of head h (Press et al. 2022)."""

    needs_positions = True

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)
        self.slopes: Tensor

    def key(self) -> Any:
        return "alibi", len(self.slopes)

    def bias(self, sight: Sight) -> Tensor:
        distance = sight.over_heads(sight.distance().abs())
        return -self.slopes[:, None, None] * distance


def bucket(distance: Tensor, buckets: int = 32, furthest: int = 128, both_ways: bool = True) -> Tensor:
    """T5's bucket of a distance j - i: near ones exact, far ones by their logarithm (C6)."""
    base = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        base = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    # float32 on purpose: the reference rounds there, and the buckets' edges depend on it
    scale = torch.log(distance.clamp(min=1).float() / exact) / math.log(furthest / exact)
    far = (exact + (scale * (buckets - exact)).long()).clamp(max=buckets - 1)
    return base + torch.where(distance < exact, distance, far)


class BucketBias(Term):
    """A learned scalar for each head and bucket of distance, shared by all layers of a stack (Raffel et al. 2020)."""

    needs_positions = True

    def __init__(self, heads: int, buckets: int = 32, furthest: int = 128, both_ways: bool = True):
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets = buckets
        self.furthest = furthest
        self.both_ways = both_ways

    def bias(self, sight: Sight) -> Tensor:
        where = bucket(sight.distance(), self.buckets, self.furthest, self.both_ways)
        return self.table(where).movedim(-1, -3)  # (..., Tq, Tk, H) -> (..., H, Tq, Tk)


class Shaw(Term):
    """e_ij = q_i (k_j + a_ij)^T / sqrt(D) and z_i = sum_j w_ij (v_j + b_ij), with a_ij and b_ij looked up by the
    clipped distance j - i and shared over heads (Shaw et al. 2018)."""

    needs_positions = True
    reads = frozenset(("queries",))

    def __init__(self, head_width: int, furthest: int = 16):
        super().__init__()
        self.furthest = furthest
        self.keys = nn.Parameter(torch.randn(2 * furthest + 1, head_width) * head_width**-0.5)
        self.values = nn.Parameter(torch.randn(2 * furthest + 1, head_width) * head_width**-0.5)

    def _where(self, look: Look) -> Tensor:
        distance = look.sight.distance().clamp(-self.furthest, self.furthest) + self.furthest
        return look.sight.over_heads(distance).expand(look.q.shape[:2] + distance.shape[-2:])  # (B, H, Tq, Tk)

    def edit(self, scores: Tensor, look: Look) -> Tensor:
        by_distance = look.q @ self.keys.t() * look.scale  # (B, H, Tq, 2k+1)
        return scores + by_distance.gather(-1, self._where(look))

    def gather(self, weights: Tensor, look: Look) -> Tensor:
        by_distance = weights.new_zeros(*weights.shape[:-1], len(self.values))
        by_distance = by_distance.scatter_add(-1, self._where(look), weights)  # (B, H, Tq, 2k+1)
        return by_distance @ self.values


class Rotary(Term):
    """Turns each pair of channels by an angle that grows with the position, so that scores depend on distance
    alone (Su et al. 2021). Channel i pairs with channel i + D/2."""

    needs_positions = True

    def __init__(self, head_width: int, base: float = 10_000.0):
        super().__init__()
        rates = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
        self.register_buffer("rates", rates.float(), persistent=False)
        self.rates: Tensor

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        angles = pos.unsqueeze(-1) * self.rates  # (T, D/2) or (B, T, D/2)
        angles = angles if angles.dim() == 2 else angles.unsqueeze(1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        one, two = x.chunk(2, dim=-1)
        return torch.cat((one * cos - two * sin, two * cos + one * sin), dim=-1)
