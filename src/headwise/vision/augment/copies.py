"""Batch augmentation: several copies of each image in a batch. Repeated augmentation is `ImageData.repeats`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from torch import Tensor

from headwise.vision.augment.base import Augmentation, AugmentationConfig


@dataclass(frozen=True)
class Copies:
    """Batch augmentation (Hoffer et al. 2020): several copies of each image in the batch, next to each other; later
    augmentations make them differ."""

    times: int = 2

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        # (B, C, H, W) -> (B * times, C, H, W)
        return images.repeat_interleave(self.times, 0), targets.repeat_interleave(self.times, 0)


class CopiesConfig(AugmentationConfig):
    """Batch augmentation: several copies of each image in a batch, which later augmentations make differ."""

    kind: Literal["copies"] = "copies"
    times: int = Field(2, ge=2)

    def build(self) -> Augmentation:
        return Copies(self.times)
