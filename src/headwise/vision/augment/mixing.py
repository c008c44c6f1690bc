"""Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019).

Both are x' = m x + (1 - m) x_other and y' = λ y + (1 - λ) y_other, with a mask m over the pixels whose mean is
λ. For mixup m is λ everywhere, for CutMix it is 0 inside a box and 1 outside.

DISCREPANCY: λ is drawn for each image. The authors' code and timm draw one for a batch, the papers' equations one for
a pair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.distributions import Beta

from headwise.vision.augment.base import (
    Augmentation,
    AugmentationConfig,
    Probability,
    build_box_mask,
    draw_uniform,
    expand_per_image,
)


class Mixing(ABC):
    """Mixes each image with another of the batch, weighted by a mask over the pixels."""

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        mask = self.draw_mask(images)
        share = mask.mean((1, 2, 3)).to(targets.dtype).unsqueeze(1)  # (B, 1, H, W) -> (B, 1)
        other = torch.randperm(len(images), device=images.device)
        return torch.lerp(images[other], images, mask), torch.lerp(targets[other], targets, share)

    @abstractmethod
    def draw_mask(self, images: Tensor) -> Tensor:
        """Draw the weight of the image itself, from 0 to 1: (B, 1, H, W), or (B, 1, 1, 1) if it is uniform."""


def draw_lambda(images: Tensor, alpha: float) -> Tensor:
    """Draw λ ~ Beta(α, α) for each image, (B,)."""
    alphas = images.new_full((len(images),), alpha)
    return Beta(alphas, alphas, validate_args=False).sample()  # checks would synchronise with the device


@dataclass(frozen=True)
class Mixup(Mixing):
    """Mixup: λ ~ Beta(α, α), the same for all pixels."""

    alpha: float = 0.8

    def draw_mask(self, images: Tensor) -> Tensor:
        return expand_per_image(draw_lambda(images, self.alpha))


@dataclass(frozen=True)
class Cutmix(Mixing):
    """CutMix: a box of the other image, of area 1 - λ with λ ~ Beta(α, α) and the image's aspect, around a random
    pixel; it is clipped at the edges, and λ recomputed as the share of the image that is left."""

    alpha: float = 1.0

    def draw_mask(self, images: Tensor) -> Tensor:
        side = (1 - draw_lambda(images, self.alpha)).sqrt()
        edges = []
        for length in images.shape[-2:]:
            half = (side * length).floor().div(2, rounding_mode="floor")
            middle = (draw_uniform(images) * length).floor()
            edges.append((middle - half, middle + half))
        (top, bottom), (left, right) = edges
        return (~build_box_mask(images, top, left, bottom, right)).to(images.dtype)


@dataclass(frozen=True)
class Switch(Mixing):
    """The second of two mixings with this probability for each image, else the first."""

    first: Mixing
    second: Mixing
    probability: float = 0.5

    def draw_mask(self, images: Tensor) -> Tensor:
        second = expand_per_image(draw_uniform(images) < self.probability)
        return torch.where(second, self.second.draw_mask(images), self.first.draw_mask(images))


class MixupConfig(AugmentationConfig):
    """Mixup: a weighted mean of two images and of their labels. λ is uniform for alpha 1, near 0 and 1 below."""

    kind: Literal["mixup"] = "mixup"
    alpha: float = Field(0.8, gt=0)

    def build(self) -> Augmentation:
        return Mixup(self.alpha)


class CutmixConfig(AugmentationConfig):
    """CutMix: a box of another image, and its share of the label."""

    kind: Literal["cutmix"] = "cutmix"
    alpha: float = Field(1.0, gt=0)

    def build(self) -> Augmentation:
        return Cutmix(self.alpha)


class MixConfig(AugmentationConfig):
    """Mixup for some images, CutMix for the others."""

    kind: Literal["mix"] = "mix"
    mixup: float = Field(0.8, gt=0)  # alpha
    cutmix: float = Field(1.0, gt=0)  # alpha
    switch: Probability = 0.5  # probability of CutMix

    def build(self) -> Augmentation:
        return Switch(Mixup(self.mixup), Cutmix(self.cutmix), self.switch)
