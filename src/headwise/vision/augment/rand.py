"""RandAugment (Cubuk et al. 2020): a few operations drawn uniformly, all of one magnitude.

The strength of an operation at magnitude 10, and its direction, are those of timm's increasing set (`inc1`), which DeiT
uses: 30 degrees, a slope of 0.3, 0.45 of the side, factors of 1 ± 0.9. Magnitude 0 changes nothing; autocontrast,
equalise and invert have no magnitude.

DISCREPANCY: the operations are the paper's 14. timm's `rand-m9-mstd0.5-inc1` leaves the identity out, has invert and
solarise-add beside the others, applies each with probability 0.5, posterises to 4 - 0.4 m bits, which is far from the
identity at 0, and fills with the mean colour instead of black.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from pydantic import Field
from torch import Tensor

from headwise.vision.augment import geometry, tones
from headwise.vision.augment.base import Augmentation, AugmentationConfig, ImageAugmentation, Probability, draw_uniform

# the paper's 14 operations, and two that timm adds
Paper = Literal[
    "identity", "autocontrast", "equalise", "rotate", "solarise", "colour", "posterise", "contrast", "brightness",
    "sharpness", "shear-x", "shear-y", "translate-x", "translate-y",
]  # fmt: skip
OperationName = Literal[Paper, "invert", "solarise-add"]
PAPER_OPERATIONS: tuple[OperationName, ...] = get_args(Paper)

Operation = Callable[[Tensor, Tensor], Tensor]  # images (n, C, H, W) and amounts (n,) from -1 to 1
MAX_MAGNITUDE = 10.0

OPERATIONS: Mapping[str, Operation] = {
    "identity": lambda images, amount: images,
    "autocontrast": lambda images, amount: tones.autocontrast(images),
    "equalise": lambda images, amount: tones.equalise(images),
    "invert": lambda images, amount: tones.invert(images),
    "rotate": lambda images, amount: geometry.rotate(images, math.radians(30) * amount),
    "shear-x": lambda images, amount: geometry.shear_x(images, 0.3 * amount),
    "shear-y": lambda images, amount: geometry.shear_y(images, 0.3 * amount),
    "translate-x": lambda images, amount: geometry.translate(images, 0.45 * images.shape[-1] * amount, 0 * amount),
    "translate-y": lambda images, amount: geometry.translate(images, 0 * amount, 0.45 * images.shape[-2] * amount),
    "posterise": lambda images, amount: tones.posterise(images, 8 - 4 * amount.abs()),
    "solarise": lambda images, amount: tones.solarise(images, 256 / 255 * (1 - amount.abs())),
    "solarise-add": lambda images, amount: tones.solarise_add(images, 110 / 255 * amount.abs()),
    "colour": lambda images, amount: tones.adjust_saturation(images, 1 + 0.9 * amount),
    "contrast": lambda images, amount: tones.adjust_contrast(images, 1 + 0.9 * amount),
    "brightness": lambda images, amount: tones.adjust_brightness(images, 1 + 0.9 * amount),
    "sharpness": lambda images, amount: tones.adjust_sharpness(images, 1 + 0.9 * amount),
}


@dataclass(frozen=True)
class RandAugment(ImageAugmentation):
    """RandAugment: `count` operations for each image, of a magnitude ~ N(magnitude, noise²) clipped to 0..10 and random
    sign."""

    count: int = 2
    magnitude: float = 9.0
    noise: float = 0.5
    probability: float = 1.0
    operations: tuple[str, ...] = PAPER_OPERATIONS

    def augment_images(self, images: Tensor) -> Tensor:
        # Operations are drawn on the host, which groups images by them: no synchronisation with the device.
        for choice in torch.randint(len(self.operations), (self.count, len(images))):
            amounts = self.draw_amounts(images)
            changed = images.clone()
            for number, name in enumerate(self.operations):
                rows = (choice == number).nonzero().squeeze(1).to(images.device)
                if len(rows):
                    changed[rows] = OPERATIONS[name](images[rows], amounts[rows])
            applied = draw_uniform(images) < self.probability
            images = torch.where(applied[:, None, None, None], changed, images)
        return images

    def draw_amounts(self, images: Tensor) -> Tensor:
        """Draw magnitudes as shares of the largest, with a random sign: from -1 to 1, (B,)."""
        noise = torch.randn(len(images), dtype=images.dtype, device=images.device)
        size = (self.magnitude + self.noise * noise).clamp(0, MAX_MAGNITUDE) / MAX_MAGNITUDE
        return size.where(draw_uniform(images) < 0.5, -size)


class RandConfig(AugmentationConfig):
    """RandAugment: `count` of the operations for each image, of one magnitude from 0 to 10 with some noise."""

    kind: Literal["rand"] = "rand"
    count: int = Field(2, ge=1)
    magnitude: float = Field(9.0, ge=0, le=10)
    noise: float = Field(0.5, ge=0)
    probability: Probability = 1.0  # of each operation
    operations: tuple[OperationName, ...] = Field(PAPER_OPERATIONS, min_length=1)

    def build(self) -> Augmentation:
        return RandAugment(**self.settings)
