"""Image batches for the training loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.data.batches import BatchPlan
from headwise.vision.images import Images


@dataclass(frozen=True)
class ImageBatch:
    """Images with their targets. B rows."""

    images: Tensor  # (B, C, H, W) bytes
    targets: Any  # of B images: a tensor, or an object with a method `to`
    ids: Tensor  # (B,) indices of the images

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """The number of images, which the training loop counts as it counts the tokens of texts."""
        return len(self.ids)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> ImageBatch:
        fields = (self.images, self.targets, self.ids)
        return ImageBatch(*(value.to(device, non_blocking=non_blocking) for value in fields))


class ImageData:
    """Images in batches of `size`. `repeats` is repeated augmentation (Berman et al. 2019): an epoch has so many copies
    of each of its images, and as many fewer images, so that its length stays the same."""

    unit = "images"  # counted by the training loop

    def __init__(
        self,
        images: Images,
        targets: Callable[[np.ndarray], Any],  # indices of images -> their targets
        seed: int,
        size: int,
        repeats: int = 1,
    ):
        self.images, self.targets, self.seed, self.size, self.repeats = images, targets, seed, size, repeats

    @property
    def summary(self) -> str:
        _, channels, height, width = self.images.pixels.shape
        shape = f"{height} x {width} pixels, {channels} channel{'s' * (channels > 1)}"
        return f"{len(self.images):,} images to train on, {shape}; {len(self.plan(0)):,} batches an epoch"

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        """Order the batches of an epoch, all of full size; which images are left over differs between epochs."""
        random = np.random.default_rng([self.seed, epoch])
        count = len(self.images)
        indices = random.permutation(count)
        if self.repeats > 1:  # copies are neighbours, so that they are in one batch
            indices = indices[: -(-count // self.repeats)].repeat(self.repeats)[:count]
        batches = max(count // self.size, 1)
        starts = np.arange(batches) * self.size
        return BatchPlan(indices[: batches * self.size], starts, np.arange(batches))

    def batch(self, indices: np.ndarray) -> ImageBatch:
        pixels = torch.from_numpy(self.images.pixels[indices])
        return ImageBatch(pixels, self.targets(indices), torch.from_numpy(indices.astype(np.int64)))
