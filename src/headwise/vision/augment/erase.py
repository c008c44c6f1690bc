"""Random erasing (Zhong et al. 2017) and cutout (DeVries and Taylor 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headwise.vision.augment.base import (
    Area,
    Aspect,
    Augmentation,
    AugmentationConfig,
    ImageAugmentation,
    Probability,
    build_box_mask,
    draw_boxes,
    draw_uniform,
)


@dataclass(frozen=True)
class Erase(ImageAugmentation):
    """Random erasing: a box at a random position becomes noise, each pixel uniform in 0..1, as in the paper.

    DISCREPANCY: timm, which DeiT uses, draws the noise from N(0, 1) after images are normalised.
    """

    probability: float = 0.25
    area: tuple[float, float] = (0.02, 0.33)
    aspect: tuple[float, float] = (0.3, 1 / 0.3)

    def augment_images(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        box_height, box_width, fits = draw_boxes(images, self.area, self.aspect)
        box_height, box_width = box_height.round(), box_width.round()
        top = (draw_uniform(images) * (height - box_height + 1)).floor()
        left = (draw_uniform(images) * (width - box_width + 1)).floor()
        erased = fits & (draw_uniform(images) < self.probability)
        box = build_box_mask(images, top, left, top + box_height, left + box_width) & erased[:, None, None, None]
        return torch.where(box, torch.rand_like(images), images)


@dataclass(frozen=True)
class Cutout(ImageAugmentation):
    """Cutout: a square of `size` pixels around a random pixel becomes black; it is clipped at the edges.

    DISCREPANCY: the authors cut normalised images, so their square has the mean colour.
    """

    size: int = 16

    def augment_images(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        top = (draw_uniform(images) * height).floor() - self.size // 2
        left = (draw_uniform(images) * width).floor() - self.size // 2
        return images.masked_fill(build_box_mask(images, top, left, top + self.size, left + self.size), 0.0)


class EraseConfig(AugmentationConfig):
    """Random erasing: a box of noise."""

    kind: Literal["erase"] = "erase"
    probability: Probability = 0.25
    area: Area = (0.02, 0.33)
    aspect: Aspect = (0.3, 1 / 0.3)

    def build(self) -> Augmentation:
        return Erase(**self.settings)


class CutoutConfig(AugmentationConfig):
    """Cutout: a black square."""

    kind: Literal["cutout"] = "cutout"
    size: int = Field(16, ge=1)  # pixels

    def build(self) -> Augmentation:
        return Cutout(self.size)
