"""Random resized crops (Szegedy et al. 2015), shifts and flips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from headwise.vision.augment.base import (
    Area,
    Aspect,
    Augmentation,
    AugmentationConfig,
    ImageAugmentation,
    Probability,
    apply_randomly,
    draw_boxes,
    draw_uniform,
)
from headwise.vision.augment.geometry import Interpolation, build_maps, warp


@dataclass(frozen=True)
class ResizedCrop(ImageAugmentation):
    """Random resized crop: a box of random area, aspect and position, enlarged to the size of the image.

    If none of ten boxes fits, it is the largest centre crop of an allowed aspect.

    DISCREPANCY: boxes are not rounded to whole pixels, which matters for small images only.
    """

    area: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"

    def augment_images(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        box_height, box_width, fits = draw_boxes(images, self.area, self.aspect)
        right, down = draw_uniform(images, -0.5, 0.5), draw_uniform(images, -0.5, 0.5)
        low, high = self.aspect
        box_height = box_height.where(fits, min(height, width / low))
        box_width = box_width.where(fits, min(width, height * high))
        right, down = right.where(fits, 0), down.where(fits, 0)
        zero = torch.zeros_like(box_height)
        offset_x, offset_y = right * (width - box_width), down * (height - box_height)
        maps = build_maps(box_width / width, zero, offset_x, zero, box_height / height, offset_y)
        return warp(images, maps, self.interpolation, outside="border")


@dataclass(frozen=True)
class Shift(ImageAugmentation):
    """A random shift by up to `by` pixels: pad the image and crop it to its size (He et al. 2015)."""

    by: int = 4
    padding: Literal["constant", "reflect", "replicate"] = "constant"

    def augment_images(self, images: Tensor) -> Tensor:
        count, _, height, width = images.shape
        device = images.device
        padded = F.pad(images, (self.by,) * 4, self.padding)
        down, right = torch.randint(2 * self.by + 1, (2, count, 1), device=device)
        rows = (down + torch.arange(height, device=device))[:, :, None]  # (B, H, 1)
        columns = (right + torch.arange(width, device=device))[:, None, :]  # (B, 1, W)
        samples = torch.arange(count, device=device)[:, None, None]
        return padded[samples, :, rows, columns].permute(0, 3, 1, 2)  # (B, H, W, C) -> (B, C, H, W)


@dataclass(frozen=True)
class Flip(ImageAugmentation):
    """Random horizontal and vertical flips, each with its own probability."""

    horizontal: float = 0.5
    vertical: float = 0.0

    def augment_images(self, images: Tensor) -> Tensor:
        for dim, probability in ((-1, self.horizontal), (-2, self.vertical)):
            if probability:
                images = apply_randomly(images, images.flip(dim), probability)
        return images


class CropConfig(AugmentationConfig):
    """Random resized crop."""

    kind: Literal["crop"] = "crop"
    area: Area = (0.08, 1.0)
    aspect: Aspect = (3 / 4, 4 / 3)
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"

    def build(self) -> Augmentation:
        return ResizedCrop(**self.settings)


class ShiftConfig(AugmentationConfig):
    """A random shift by some pixels, with padding."""

    kind: Literal["shift"] = "shift"
    by: int = Field(4, ge=1)
    padding: Literal["constant", "reflect", "replicate"] = "constant"

    def build(self) -> Augmentation:
        return Shift(**self.settings)


class FlipConfig(AugmentationConfig):
    """Random flips."""

    kind: Literal["flip"] = "flip"
    horizontal: Probability = 0.5
    vertical: Probability = 0.0

    def build(self) -> Augmentation:
        return Flip(**self.settings)
