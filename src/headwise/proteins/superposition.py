"""Superposition of structures: Kabsch's optimal rotation, and a search for the one with the best TM-score and GDT.

Letters: N points, B sets of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

MIN_FRAGMENT = 4  # residues of the shortest fragment that the search starts from
MAX_ROUNDS = 20


@dataclass(frozen=True, eq=False)
class Superposition:
    """Rotations and translations, x -> x R^T + t."""

    rotation: Tensor  # (..., 3, 3)
    translation: Tensor  # (..., 3)

    def apply(self, points: Tensor) -> Tensor:
        """Move points, (N, 3) -> (..., N, 3)."""
        return points @ self.rotation.transpose(-1, -2) + self.translation.unsqueeze(-2)


def superimpose(points: Tensor, target: Tensor, weights: Tensor) -> Superposition:
    """The rigid motion of points (N, 3) onto the target (N, 3) with the least weighted squared distance (Kabsch 1976),
    for each row of weights (..., N). Reflections are excluded."""
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
    products = (points.unsqueeze(-1) * target.unsqueeze(-2)).flatten(-2)  # (N, 9)
    from_mean, to_mean = weights @ points, weights @ target  # (..., 3)
    covariance = (weights @ products).unflatten(-1, (3, 3)) - from_mean.unsqueeze(-1) * to_mean.unsqueeze(-2)
    u, _, v = torch.linalg.svd(covariance)
    sign = torch.ones_like(from_mean)
    sign[..., 2] = torch.linalg.det(u @ v).sign()
    rotation = (u * sign.unsqueeze(-2) @ v).transpose(-1, -2)
    return Superposition(rotation, to_mean - (rotation @ from_mean.unsqueeze(-1)).squeeze(-1))


def search_superpositions(points: Tensor, target: Tensor, distance: float) -> Iterator[Tensor]:
    """Distances of all points, (B, N), under many superpositions: the search of the program TM-score (Zhang and
    Skolnick 2004). Fragments of N, N/2, N/4 ... 4 residues are superimposed, and then, repeatedly, the residues that
    came closer than `distance`."""
    length = len(points)
    points, target = points - points.mean(0), target - target.mean(0)  # small numbers: less rounding
    for size in list_fragments(length):
        starts = torch.arange(length - size + 1)
        places = torch.arange(length)
        chosen = ((places >= starts[:, None]) & (places < starts[:, None] + size)).to(points.dtype)  # (B, N)
        gaps = _measure(points, target, chosen)
        yield gaps
        cutoff = distance - 1
        for _ in range(MAX_ROUNDS):
            close = _choose_close(gaps, cutoff)
            changed = (close != chosen).any(-1)
            if not changed.any():
                break
            chosen, gaps = close[changed], _measure(points, target, close[changed])
            yield gaps
            cutoff = distance + 1


def list_fragments(length: int) -> list[int]:
    """Lengths of the fragments that are superimposed first: all, halves, quarters ... and 4 residues.

    >>> list_fragments(22), list_fragments(3)
    ([22, 11, 5, 4], [3])
    """
    sizes = [length >> halvings for halvings in range(length.bit_length())]
    return [*(size for size in sizes if size > MIN_FRAGMENT), min(length, MIN_FRAGMENT)]


def _measure(points: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Distances after each superposition, (B, N): |Rp + t - q|² written out, so that all is matrix products."""
    motion = superimpose(points, target, weights)
    products = (target.unsqueeze(-1) * points.unsqueeze(-2)).flatten(-2)  # (N, 9)
    turned = (motion.translation.unsqueeze(-2) @ motion.rotation).squeeze(-2)  # (B, 3): t R
    squares = (points.square() + target.square()).sum(-1) + motion.translation.square().sum(-1, keepdim=True)
    cross = turned @ points.T - motion.rotation.flatten(-2) @ products.T - motion.translation @ target.T
    return (squares + 2 * cross).clamp(min=0).sqrt()


def _choose_close(gaps: Tensor, cutoff: float) -> Tensor:
    """The points within a cutoff, (B, N); at least three of them."""
    third = gaps.topk(min(3, gaps.shape[-1]), largest=False).values[:, -1:]
    return (gaps <= third.clamp(min=cutoff)).to(gaps.dtype)
