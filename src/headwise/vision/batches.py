"""Batches of images for the training loop: order by epoch, tensors by numbers."""

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
    """Images with what is to be learnt of them. B rows."""

    images: Tensor  # (B, C, H, W) bytes
    targets: Any  # of B images: a tensor, or what has a `to`
    ids: Tensor  # (B,) numbers of the images

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """What the loop counts: images."""
        return len(self.ids)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> ImageBatch:
        fields = (self.images, self.targets, self.ids)
        return ImageBatch(*(each.to(device, non_blocking=non_blocking) for each in fields))


class ImageData:
    """Images in batches of `size`. With `repeats`, an epoch has so many copies of each image and is as long as without:
    a share of the images, each several times, which augmentation tells apart (Berman et al. 2019)."""

    unit = "images"  # what the loop counts

    def __init__(
        self,
        images: Images,
        targets: Callable[[np.ndarray], Any],  # numbers of images -> what is to be learnt of them
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
        """Whole batches; the images that are left over differ from epoch to epoch."""
        random = np.random.default_rng([self.seed, epoch])
        count = len(self.images)
        numbers = random.permutation(count)
        if self.repeats > 1:  # copies stand next to each other, so that one batch has them all
            numbers = numbers[: -(-count // self.repeats)].repeat(self.repeats)[:count]
        whole = max(count // self.size, 1)
        starts = np.arange(whole) * self.size
        return BatchPlan(numbers[: whole * self.size], starts, np.arange(whole))

    def batch(self, numbers: np.ndarray) -> ImageBatch:
        pixels = torch.from_numpy(self.images.pixels[numbers])
        return ImageBatch(pixels, self.targets(numbers), torch.from_numpy(numbers.astype(np.int64)))
