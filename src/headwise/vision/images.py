"""Decoded images with what is to be learnt of each, in memory or mapped from the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Images:
    """`targets` are labels, captions or boxes; `names` say where each image comes from.

    >>> images = Images(np.zeros((2, 1, 8, 8), np.uint8), ["cat", "dog"], ["a.png", "b.png"])
    >>> len(images), images.take([1]).targets
    (2, ['dog'])
    """

    pixels: np.ndarray  # (N, C, H, W) bytes
    targets: Sequence[Any]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, number: int) -> tuple[np.ndarray, Any]:
        return self.pixels[number], self.targets[number]

    def __iter__(self) -> Iterator[tuple[np.ndarray, Any]]:
        return (self[number] for number in range(len(self)))

    def take(self, numbers: Sequence[int] | np.ndarray) -> Images:
        """Some of them, in this order."""
        chosen = [int(number) for number in numbers]
        targets, names = ([side[number] for number in chosen] for side in (self.targets, self.names))
        return Images(self.pixels[np.asarray(chosen, np.int64)], targets, names)


@dataclass(frozen=True)
class ImageCorpus:
    """The parts of a set of images; `test` may be empty."""

    train: Images
    valid: Images
    test: Images
