"""Decoded images with their targets, in memory or memory-mapped from the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

Target = TypeVar("Target")  # a label or caption, str, or Boxes


@dataclass(frozen=True)
class Images(Generic[Target]):
    """Pixels with `targets` (labels, captions or boxes) and `names`, which tell where each image is from.

    >>> images = Images(np.zeros((2, 1, 8, 8), np.uint8), ["cat", "dog"], ["a.png", "b.png"])
    >>> len(images), images.take([1]).targets
    (2, ['dog'])
    """

    pixels: np.ndarray  # (N, C, H, W) bytes
    targets: Sequence[Target]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, Target]:
        return self.pixels[index], self.targets[index]

    def __iter__(self) -> Iterator[tuple[np.ndarray, Target]]:
        return (self[index] for index in range(len(self)))

    def take(self, indices: Sequence[int] | np.ndarray) -> Images[Target]:
        """The images with these indices, in this order."""
        selected = [int(index) for index in indices]
        targets, names = [self.targets[index] for index in selected], [self.names[index] for index in selected]
        return Images(self.pixels[np.asarray(selected, np.int64)], targets, names)


@dataclass(frozen=True)
class ImageCorpus:
    """The parts of an image data set; `test` may be empty."""

    train: Images
    valid: Images
    test: Images
    files: tuple[Path, ...] = ()  # of all parts, with those of annotations; empty for generated images
