"""Bounding boxes and detections, intersection over union (IoU) and generalised IoU.

Boxes are rows of four numbers, `corners` x0 y0 x1 y1 or `centred` x y width height. The functions take NumPy arrays and
torch tensors and broadcast: `iou(a, b)` is elementwise, `iou(a[:, None], b)` of all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")
MIN_AREA = 1e-9  # lower bound of an area that is divided by


@dataclass(frozen=True, eq=False)
class Boxes:
    """Ground-truth boxes of one image: corners in pixels, a label for each, and which of them are crowds, whose objects
    are not counted.

    >>> boxes = Boxes(np.array([[1, 2, 5, 6]]), ("star",))
    >>> boxes.flip(width=8).corners.tolist(), boxes.scale(2, 1).corners.tolist()
    ([[3.0, 2.0, 7.0, 6.0]], [[2.0, 2.0, 10.0, 6.0]])
    """

    corners: np.ndarray  # (n, 4) float32: x0 y0 x1 y1
    labels: tuple[str, ...]
    crowd: tuple[bool, ...] = ()  # empty: none

    def __post_init__(self) -> None:
        object.__setattr__(self, "corners", np.asarray(self.corners, np.float32).reshape(-1, 4))
        object.__setattr__(self, "crowd", tuple(self.crowd) or (False,) * len(self.labels))
        if not len(self.corners) == len(self.labels) == len(self.crowd):
            raise ValueError(f"{len(self.corners)} boxes need as many labels, not {len(self.labels)}")

    def __len__(self) -> int:
        return len(self.labels)

    def scale(self, across: float, down: float) -> Boxes:
        """Scale the boxes to an image of another size."""
        return replace(self, corners=self.corners * np.array([across, down, across, down], np.float32))

    def shift(self, right: float, down: float) -> Boxes:
        """Move the boxes by pixels to the right and down."""
        return replace(self, corners=self.corners + np.array([right, down, right, down], np.float32))

    def clip(self, width: float, height: float) -> Boxes:
        """Clip the boxes to an image of this size and drop those outside."""
        clipped = self.corners.clip(0, np.array([width, height, width, height], np.float32))
        return replace(self, corners=clipped).select(area(clipped) > 0)

    def flip(self, width: float) -> Boxes:
        """Flip the boxes horizontally in an image of this width."""
        return replace(self, corners=flip_corners(self.corners, width))

    def select(self, selection: np.ndarray) -> Boxes:
        """Some of the boxes, by a boolean mask or by indices."""
        indices = np.arange(len(self))[selection].tolist()
        labels, crowd = (tuple(values[index] for index in indices) for values in (self.labels, self.crowd))
        return Boxes(self.corners[indices], labels, crowd)


def to_centred(corners: Array) -> Array:
    """x0 y0 x1 y1 -> x y width height, (..., 4)."""
    low, high = corners[..., :2], corners[..., 2:]
    return _concatenate((low + high) / 2, high - low)


def to_corners(centred: Array) -> Array:
    """x y width height -> x0 y0 x1 y1, (..., 4).

    >>> to_corners(to_centred(np.array([1.0, 2.0, 5.0, 4.0]))).tolist()
    [1.0, 2.0, 5.0, 4.0]
    """
    middle, half = centred[..., :2], centred[..., 2:] / 2
    return _concatenate(middle - half, middle + half)


def flip_corners(corners: Array, width: float) -> Array:
    """Flip corners horizontally in an image of this width."""
    x0, y0, x1, y1 = (corners[..., side : side + 1] for side in range(4))
    return _concatenate(width - x1, y0, width - x0, y1)


def area(corners: Array) -> Array:
    """The area of boxes, (..., 4) -> (...)."""
    return _box_area(corners[..., :2], corners[..., 2:])


def intersection(a: Array, b: Array) -> Array:
    """The area of the intersection of two boxes."""
    return _box_area(a[..., :2].clip(min=b[..., :2]), a[..., 2:].clip(max=b[..., 2:]))


def iou(a: Array, b: Array) -> Array:
    """Intersection over union.

    >>> iou(np.array([0.0, 0, 2, 2]), np.array([[1.0, 0, 3, 2], [5, 5, 6, 6]])).round(3).tolist()
    [0.333, 0.0]
    """
    overlap = intersection(a, b)
    return overlap / (area(a) + area(b) - overlap).clip(min=MIN_AREA)


def giou(a: Array, b: Array) -> Array:
    """Generalised intersection over union (Rezatofighi et al. 2019): IoU minus the share of the hull that is in neither
    box, so that there is a gradient where boxes do not overlap.

    >>> giou(np.array([0.0, 0, 1, 1]), np.array([2.0, 0, 3, 1])).round(3).tolist()
    -0.333
    """
    hull = _box_area(a[..., :2].clip(max=b[..., :2]), a[..., 2:].clip(min=b[..., 2:])).clip(min=MIN_AREA)
    overlap = intersection(a, b)
    union = area(a) + area(b) - overlap
    return overlap / union.clip(min=MIN_AREA) - (hull - union) / hull


def _box_area(low: Array, high: Array) -> Array:
    sides = (high - low).clip(min=0)
    return sides[..., 0] * sides[..., 1]


def _concatenate(*parts: Array) -> Array:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, -1)
    import torch

    return torch.cat(parts, -1)


@dataclass(frozen=True, eq=False)
class Detections:
    """Detections in one image."""

    corners: np.ndarray  # (n, 4): x0 y0 x1 y1
    labels: tuple[str, ...]
    scores: np.ndarray  # (n,)
    queries: np.ndarray = field(default_factory=lambda: np.zeros(0, int))  # (n,) the object query of each

    def __len__(self) -> int:
        return len(self.labels)

    def filter_scores(self, threshold: float) -> Detections:
        """The detections with at least this score."""
        indices = np.flatnonzero(self.scores >= threshold)
        labels = tuple(self.labels[index] for index in indices)
        queries = self.queries[indices] if len(self.queries) else indices
        return Detections(self.corners[indices], labels, self.scores[indices], queries)
