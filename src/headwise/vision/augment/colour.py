"""Colours that a camera, or the hour of the day, might have changed."""

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
    """Brightness, contrast and saturation times 1 - b .. 1 + b each, the hue moved by up to a share of its circle.

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
        for number in torch.randperm(len(steps)).tolist():  # drawn on the host, which so need not wait for the device
            change, middle, most = steps[number]
            if most:
                images = change(images, draw_uniform(images, middle - most, middle + most))
        return images


@dataclass(frozen=True)
class Grey(ImageAugmentation):
    """Without colour, with a probability."""

    probability: float = 0.2

    def augment_images(self, images: Tensor) -> Tensor:
        return apply_randomly(images, tones.to_grey(images).expand_as(images), self.probability)


class ColourConfig(AugmentationConfig):
    """Other brightness, contrast, saturation and hue: the most that each may change."""

    kind: Literal["colour"] = "colour"
    brightness: Change = 0.3
    contrast: Change = 0.3
    saturation: Change = 0.3
    hue: float = Field(0.0, ge=0, le=0.5)  # of the circle of hues

    def build(self) -> Augmentation:
        return ColourJitter(**self.settings)


class GreyConfig(AugmentationConfig):
    """No colour at all."""

    kind: Literal["grey"] = "grey"
    probability: Probability = 0.2

    def build(self) -> Augmentation:
        return Grey(**self.settings)
