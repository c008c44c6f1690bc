"""What augmentations have in common: draws for each image of a batch, boxes, and the choice of whom they befall."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, Protocol

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from headwise.config.base import Config

ATTEMPTS = 10  # how often a box is drawn that does not fit, as everybody does


class Augmentation(Protocol):
    """Images (B, C, H, W) in 0..1 and soft labels (B, L), changed together."""

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]: ...


class ImageAugmentation(ABC):
    """Changes images and leaves their labels as they are."""

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.augment_images(images), targets

    @abstractmethod
    def augment_images(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C, H, W)."""


def draw_uniform(images: Tensor, low: float = 0.0, high: float = 1.0, times: int = 0) -> Tensor:
    """Numbers between two others for each image: (B,), or (B, times)."""
    shape = (len(images), times) if times else (len(images),)
    return low + (high - low) * torch.rand(shape, dtype=images.dtype, device=images.device)


def expand_per_image(values: Tensor) -> Tensor:
    """One number for an image, to be spread over its pixels: (B,) -> (B, 1, 1, 1)."""
    return values[:, None, None, None]


def apply_randomly(images: Tensor, changed: Tensor, probability: float) -> Tensor:
    """Each image as it was, or with this probability changed."""
    return torch.where(expand_per_image(draw_uniform(images) < probability), changed, images)


def draw_boxes(images: Tensor, area: tuple[float, float], aspect: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Heights and widths in pixels of boxes that fit the images: shares of their area, uniform, and a width / height
    that is uniform on a logarithmic scale. (B,) each; the third says for which images one did fit in time."""
    height, width = images.shape[-2:]
    areas = height * width * draw_uniform(images, *area, times=ATTEMPTS)  # (B, attempts)
    ratios = draw_uniform(images, math.log(aspect[0]), math.log(aspect[1]), times=ATTEMPTS).exp()
    tall, wide = (areas / ratios).sqrt(), (areas * ratios).sqrt()
    fits = (tall <= height) & (wide <= width)
    first = fits.int().argmax(1, keepdim=True)  # of several greatest it is the first
    found = (tall.gather(1, first), wide.gather(1, first), fits.gather(1, first))
    return found[0].squeeze(1), found[1].squeeze(1), found[2].squeeze(1)


def build_box_mask(images: Tensor, top: Tensor, left: Tensor, bottom: Tensor, right: Tensor) -> Tensor:
    """Which pixels are inside a box for each image, its last row and column excluded: (B,) x 4 -> (B, 1, H, W)."""
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
    """A `kind`, and settings of its own, under the names of what it builds."""

    kind: str

    def build(self) -> Augmentation:
        raise TypeError(f"{type(self).__name__} builds nothing")

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in self if name != "kind"}
