"""Rigid transforms: a rotation and a translation, the frames of residues and of their rigid groups.

A frame T = (R, t) maps local to global coordinates: T x = R x + t (Jumper et al. 2021, supplement, section 1.1). Norms
that divide have a small constant, so that three points on one line give a frame without NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class Frames:
    """Rigid transforms of any batch shape: T x = R x + t."""

    rotations: Tensor  # (..., 3, 3)
    translations: Tensor  # (..., 3)

    @classmethod
    def identity(cls, shape: Sequence[int], like: Tensor) -> Frames:
        """Identity transforms with the dtype and device of `like`."""
        rotations = torch.eye(3, dtype=like.dtype, device=like.device).expand(*shape, 3, 3)
        return cls(rotations, like.new_zeros(*shape, 3))

    @classmethod
    def from_three_points(cls, first: Tensor, origin: Tensor, third: Tensor) -> Frames:
        """Algorithm 21 (rigidFrom3Points), a Gram-Schmidt process: `third` is on the positive x axis, `first` in the xy
        plane with y > 0. The backbone frame of a residue is that of N, CA and C."""
        e1 = normalise(third - origin)
        v2 = first - origin
        e2 = normalise(v2 - e1 * (e1 * v2).sum(-1, keepdim=True))
        return cls(torch.stack((e1, e2, torch.linalg.cross(e1, e2)), dim=-1), origin)

    @property
    def shape(self) -> torch.Size:
        return self.translations.shape[:-1]

    def __getitem__(self, index: Any) -> Frames:
        """Index the batch shape; with `...` name the last batch dimensions."""
        index = index if isinstance(index, tuple) else (index,)
        return Frames(self.rotations[(*index, slice(None), slice(None))], self.translations[(*index, slice(None))])

    def unsqueeze(self, dim: int) -> Frames:
        """Insert a batch dimension, counted from the end if negative."""
        return Frames(
            self.rotations.unsqueeze(dim - 2 if dim < 0 else dim),
            self.translations.unsqueeze(dim - 1 if dim < 0 else dim),
        )

    def compose(self, other: Frames) -> Frames:
        """T_1 o T_2: first `other`, then this one."""
        return Frames(self.rotations @ other.rotations, self.apply(other.translations))

    def invert(self) -> Frames:
        """T^-1 = (R^T, -R^T t)."""
        inverse = self.rotations.transpose(-1, -2)
        return Frames(inverse, -(inverse @ self.translations.unsqueeze(-1)).squeeze(-1))

    def apply(self, points: Tensor) -> Tensor:
        """Local to global coordinates: R x + t, for points (..., 3)."""
        return self.rotate(points) + self.translations

    def rotate(self, points: Tensor) -> Tensor:
        """R x, without the translation."""
        return (self.rotations @ points.unsqueeze(-1)).squeeze(-1)

    def apply_inverse(self, points: Tensor) -> Tensor:
        """Global to local coordinates: R^T (x - t)."""
        return (self.rotations.transpose(-1, -2) @ (points - self.translations).unsqueeze(-1)).squeeze(-1)

    def update(self, vector: Tensor) -> Frames:
        """Compose with the transform of (..., 6): b, c and d of the quaternion (1, b, c, d), normalised, and a
        translation (Algorithm 23, lines 2-3)."""
        return self.compose(Frames(rotation_from_quaternion(vector[..., :3]), vector[..., 3:]))

    def scale(self, factor: float) -> Frames:
        """Translations in another unit of length."""
        return Frames(self.rotations, self.translations * factor)

    def detach_rotations(self) -> Frames:
        """The same frames; no gradient flows through the rotations."""
        return Frames(self.rotations.detach(), self.translations)


def stack_frames(frames: Sequence[Frames], dim: int = 0) -> Frames:
    """Frames along a new batch dimension `dim`, counted from the end if negative."""
    rotations = torch.stack([frame.rotations for frame in frames], dim - 2 if dim < 0 else dim)
    return Frames(rotations, torch.stack([frame.translations for frame in frames], dim - 1 if dim < 0 else dim))


def normalise(vector: Tensor) -> Tensor:
    """Vectors (..., 3) of length 1; the zero vector stays zero."""
    return vector / (vector.square().sum(-1, keepdim=True) + EPSILON**2).sqrt()


def rotation_from_quaternion(vector: Tensor) -> Tensor:
    """The rotation matrix of the quaternion (1, b, c, d) / sqrt(1 + b^2 + c^2 + d^2): (..., 3) -> (..., 3, 3)
    (Algorithm 23, lines 2-3)."""
    a = (1 + vector.square().sum(-1)).rsqrt()  # (...,)
    b, c, d = (vector * a.unsqueeze(-1)).unbind(-1)
    rows = (
        (a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)),
        (2 * (b * c + a * d), a * a - b * b + c * c - d * d, 2 * (c * d - a * b)),
        (2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d),
    )
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def rotation_about_x(angle: Tensor) -> Tensor:
    """The rotation about the x axis by an angle given as (sin, cos): (..., 2) -> (..., 3, 3) (Algorithm 25)."""
    sin, cos = angle.unbind(-1)
    one, zero = torch.ones_like(sin), torch.zeros_like(sin)
    rows = ((one, zero, zero), (zero, cos, -sin), (zero, sin, cos))
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
