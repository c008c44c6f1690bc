"""The interface of augmentations, and what they share: random draws for each image of a batch, and random boxes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, Protocol

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from headwise.config.base import Config

ATTEMPTS = 10  # draws of a box until it fits, as in torchvision and timm


class Augmentation(Protocol):
    """Augments images (B, C, H, W) in 0..1 and soft labels (B, L) together."""

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]: ...


class ImageAugmentation(ABC):
    """An augmentation that leaves labels unchanged."""

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.augment_images(images), targets

    @abstractmethod
    def augment_images(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C, H, W)."""


def draw_uniform(images: Tensor, low: float = 0.0, high: float = 1.0, draws: int = 0) -> Tensor:
    """Draw uniform numbers for each image: (B,), or (B, draws)."""
    shape = (len(images), draws) if draws else (len(images),)
    return low + (high - low) * torch.rand(shape, dtype=images.dtype, device=images.device)


def expand_per_image(values: Tensor) -> Tensor:
    """Reshape a number for each image to broadcast over its pixels: (B,) -> (B, 1, 1, 1)."""
    return values[:, None, None, None]


def apply_randomly(images: Tensor, changed: Tensor, probability: float) -> Tensor:
    """Take each image from `changed` with this probability, else from `images`."""
    return torch.where(expand_per_image(draw_uniform(images) < probability), changed, images)


def draw_boxes(images: Tensor, area: tuple[float, float], aspect: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Draw heights and widths of boxes in pixels: a uniform share of the image's area, and a log-uniform width /
    height. (B,) each; the third is whether one of `ATTEMPTS` draws fits the image."""
    height, width = images.shape[-2:]
    areas = height * width * draw_uniform(images, *area, draws=ATTEMPTS)  # (B, attempts)
    ratios = draw_uniform(images, math.log(aspect[0]), math.log(aspect[1]), draws=ATTEMPTS).exp()
    heights, widths = (areas / ratios).sqrt(), (areas * ratios).sqrt()
    fits = (heights <= height) & (widths <= width)
    first = fits.int().argmax(1, keepdim=True)  # of equal maxima, argmax returns the first
    return heights.gather(1, first).squeeze(1), widths.gather(1, first).squeeze(1), fits.gather(1, first).squeeze(1)


def build_box_mask(images: Tensor, top: Tensor, left: Tensor, bottom: Tensor, right: Tensor) -> Tensor:
    """A mask of the pixels inside a box for each image, `bottom` and `right` excluded: (B,) x 4 -> (B, 1, H, W)."""
    rows = torch.arange(images.shape[-2], device=images.device)
    columns = torch.arange(images.shape[-1], device=images.device)
    down = (rows >= top[:, None]) & (rows < bottom[:, None])  # (B, H)
    across = (columns >= left[:, None]) & (columns < right[:, None])  # (B, W)
    return (down[:, :, None] & across[:, None, :]).unsqueeze(1)  # (B, H, 1), (B, 1, W) -> (B, 1, H, W)


def _check_ascending(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError(f"the least comes before the most: [{pair[1]}, {pair[0]}]")
    return pair


Probability = Annotated[float, Field(ge=0, le=1)]
Change = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Area = Annotated[tuple[Share, Share], AfterValidator(_check_ascending)]
Ratio = Annotated[float, Field(gt=0)]
Aspect = Annotated[tuple[Ratio, Ratio], AfterValidator(_check_ascending)]  # width / height


class AugmentationConfig(Config):
    """A `kind`, and settings with the names of the fields of what it builds."""

    kind: str

    def build(self) -> Augmentation:
        raise TypeError(f"{type(self).__name__} builds nothing")

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in self if name != "kind"}
