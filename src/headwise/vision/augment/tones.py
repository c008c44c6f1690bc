"""Batched colour operations on images (B, C, H, W) in 0..1, with a number for each image, (B,).

Operations on levels (posterise, equalise) have 256 of them, as 8-bit files do. A blend with factor 1 is the image
itself, with factor 0 what it is blended with.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.vision.augment.base import expand_per_image

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def has_colour(images: Tensor) -> bool:
    """Whether the images are RGB."""
    return images.shape[1] == 3


def to_grey(images: Tensor) -> Tensor:
    """The luma of each pixel, (B, 1, H, W); greyscale images are unchanged."""
    if not has_colour(images):
        return images
    return (images * images.new_tensor(LUMA).view(3, 1, 1)).sum(1, keepdim=True)


def blend(other: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """Interpolate, or extrapolate, from `other` to the images."""
    return torch.lerp(other.expand_as(images), images, expand_per_image(factor)).clamp(0, 1)


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black."""
    return (images * expand_per_image(factor)).clamp(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image's mean grey."""
    return blend(to_grey(images).mean((1, 2, 3), keepdim=True), images, factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the greyscale image."""
    return blend(to_grey(images), images, factor) if has_colour(images) else images


def adjust_sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image smoothed by (1 1 1, 1 5 1, 1 1 1) / 13, except for its outermost pixels."""
    if min(images.shape[-2:]) < 3:
        return images
    kernel = images.new_ones(3, 3)
    kernel[1, 1] = 5
    channels = images.shape[1]
    smooth = images.clone()
    weight = (kernel / 13).expand(channels, 1, 3, 3)
    smooth[..., 1:-1, 1:-1] = F.conv2d(images, weight, groups=channels)
    return blend(smooth, images, factor)


def shift_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Shift hues by a share of their circle (the hexcone model: Smith 1978)."""
    if not has_colour(images):
        return images
    value, channel = images.max(1)  # (B, H, W)
    chroma = value - images.amin(1)
    red, green, blue = images.unbind(1)
    norm = chroma.where(chroma > 0, 1)  # the hue of a grey is arbitrary
    sixths = torch.stack([(green - blue) / norm, 2 + (blue - red) / norm, 4 + (red - green) / norm])  # (3, B, H, W)
    angle = sixths.gather(0, channel.unsqueeze(0)) + 6 * expand_per_image(turn).transpose(0, 1)  # (1, B, H, W)
    # hues relative to 5, 3 and 1 sixths of the circle for red, green and blue
    offsets = (images.new_tensor([5.0, 3.0, 1.0]).view(3, 1, 1, 1) + angle) % 6
    weights = torch.minimum(offsets, 4 - offsets).clamp(0, 1)
    return (value - chroma * weights).transpose(0, 1)  # (3, B, H, W) -> (B, 3, H, W)


def invert(images: Tensor) -> Tensor:
    return 1 - images


def solarise(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert values from the threshold up."""
    return torch.where(images < expand_per_image(threshold), images, 1 - images)


def solarise_add(images: Tensor, amount: Tensor) -> Tensor:
    """Add an amount to values in the darker half."""
    return torch.where(images < 128 / 255, (images + expand_per_image(amount)).clamp(max=1), images)


def posterise(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the upper bits of each level; 8 bits are the image itself."""
    step = 2 ** (8 - expand_per_image(bits).round())
    return images - to_levels(images) % step / 255


def autocontrast(images: Tensor) -> Tensor:
    """Scale each channel so that its minimum is 0 and its maximum 1."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    spread = high - low
    return torch.where(spread > 0, (images - low) / spread.where(spread > 0, 1), images)


def equalise(images: Tensor) -> Tensor:
    """Histogram equalisation of each channel, with Pillow's rounding: level i becomes (counts below i + step // 2) //
    step, where 255 steps are all pixels but those of the brightest level."""
    flat = to_levels(images).long().flatten(2)  # (B, C, H, W) -> (B, C, H * W)
    counts = flat.new_zeros(*flat.shape[:2], 256).scatter_add_(2, flat, torch.ones_like(flat))
    brightest = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - brightest) // 255  # (B, C, 1)
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    equalised = table.gather(2, flat).view_as(images).to(images.dtype) / 255
    return torch.where(step.unsqueeze(-1) > 0, equalised, images)


def to_levels(images: Tensor) -> Tensor:
    """Round to the nearest of 256 levels, as floats."""
    return (255 * images).round()
