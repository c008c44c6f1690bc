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
    OnImages,
    Probability,
    sometimes,
    uniform,
)


@dataclass(frozen=True)
class ColourJitter(OnImages):
    """Colour jitter: brightness, contrast and saturation times 1 - b .. 1 + b, the hue moved by a share of its circle.

    DISCREPANCY: the order of the four is drawn for a batch, not for each image.
    """

    brightness: float = 0.3
    contrast: float = 0.3
    saturation: float = 0.3
    hue: float = 0.0

    def change(self, images: Tensor) -> Tensor:
        steps = (
            (tones.brightness, 1.0, self.brightness),
            (tones.contrast, 1.0, self.contrast),
            (tones.saturation, 1.0, self.saturation),
            (tones.hue, 0.0, self.hue),
        )
        for number in torch.randperm(len(steps)).tolist():  # drawn on the host, which so need not wait for the device
            change, middle, most = steps[number]
            if most:
                images = change(images, uniform(images, middle - most, middle + most))
        return images


@dataclass(frozen=True)
class Grey(OnImages):
    """Without colour, with a probability."""

    probability: float = 0.2

    def change(self, images: Tensor) -> Tensor:
        return sometimes(images, tones.grey(images).expand_as(images), self.probability)


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
