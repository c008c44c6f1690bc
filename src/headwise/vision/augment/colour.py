"""Colour jitter and greyscale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headwise.vision.augment import tones
from headwise.vision.augment.base import (
    Augmentation,
    AugmentationConfig,
    Change,
    ImageAugmentation,
    Probability,
    apply_randomly,
    draw_uniform,
)


@dataclass(frozen=True)
class ColourJitter(ImageAugmentation):
    """Colour jitter: scales brightness, contrast and saturation by factors in 1 - b .. 1 + b, and shifts the hue by up
    to a share of the circle.

    DISCREPANCY: the order of the four is drawn for a batch, not for each image.
    """

    brightness: float = 0.3
    contrast: float = 0.3
    saturation: float = 0.3
    hue: float = 0.0

    def augment_images(self, images: Tensor) -> Tensor:
        steps = (
            (tones.adjust_brightness, 1.0, self.brightness),
            (tones.adjust_contrast, 1.0, self.contrast),
            (tones.adjust_saturation, 1.0, self.saturation),
            (tones.shift_hue, 0.0, self.hue),
        )
        for number in torch.randperm(len(steps)).tolist():  # drawn on the host: no synchronisation with the device
            adjust, identity, limit = steps[number]
            if limit:
                images = adjust(images, draw_uniform(images, identity - limit, identity + limit))
        return images


@dataclass(frozen=True)
class Grey(ImageAugmentation):
    """Random greyscale."""

    probability: float = 0.2

    def augment_images(self, images: Tensor) -> Tensor:
        return apply_randomly(images, tones.to_grey(images).expand_as(images), self.probability)


class ColourConfig(AugmentationConfig):
    """Colour jitter: the largest change of brightness, contrast, saturation and hue."""

    kind: Literal["colour"] = "colour"
    brightness: Change = 0.3
    contrast: Change = 0.3
    saturation: Change = 0.3
    hue: float = Field(0.0, ge=0, le=0.5)  # of the circle of hues

    def build(self) -> Augmentation:
        return ColourJitter(**self.settings)


class GreyConfig(AugmentationConfig):
    """Random greyscale."""

    kind: Literal["grey"] = "grey"
    probability: Probability = 0.2

    def build(self) -> Augmentation:
        return Grey(**self.settings)
