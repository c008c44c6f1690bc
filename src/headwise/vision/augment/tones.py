"""Tones and colours of images: each function takes images (B, C, H, W) in 0..1 and a number for each image, (B,).

Those that work with levels (posterise, equalise) count 256 of them, as files do. Blends are 1 at factor 1: the image;
at 0 they are what the image is blended with.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.vision.augment.base import expand_per_image

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def has_colour(images: Tensor) -> bool:
    """Whether they have red, green and blue."""
    return images.shape[1] == 3


def to_grey(images: Tensor) -> Tensor:
    """The luma of each pixel, (B, 1, H, W); images without colour are grey already."""
    if not has_colour(images):
        return images
    return (images * images.new_tensor(LUMA).view(3, 1, 1)).sum(1, keepdim=True)


def blend(with_: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(with_.expand_as(images), images, expand_per_image(factor)).clamp(0, 1)


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """A blend with black."""
    return (images * expand_per_image(factor)).clamp(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """A blend with the image's mean grey."""
    return blend(to_grey(images).mean((1, 2, 3), keepdim=True), images, factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """A blend with the grey image."""
    return blend(to_grey(images), images, factor) if has_colour(images) else images


def adjust_sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """A blend with the image smoothed by (1 1 1, 1 5 1, 1 1 1) / 13; its outermost pixels stay."""
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
    """Colours moved round the circle of hues, 1 being all the way (the hexcone model: Smith 1978)."""
    if not has_colour(images):
        return images
    highest, which = images.max(1)  # (B, H, W)
    spread = highest - images.amin(1)
    red, green, blue = images.unbind(1)
    over = spread.where(spread > 0, 1)  # a grey has no hue; any will do
    sixths = torch.stack([(green - blue) / over, 2 + (blue - red) / over, 4 + (red - green) / over])  # (3, B, H, W)
    angle = sixths.gather(0, which.unsqueeze(0)) + 6 * expand_per_image(turn).transpose(0, 1)  # (1, B, H, W)
    # channel n has the hue's distance from its own place on the circle: 5, 3 and 1 sixths before red, green and blue
    places = (images.new_tensor([5.0, 3.0, 1.0]).view(3, 1, 1, 1) + angle) % 6
    lacking = torch.minimum(places, 4 - places).clamp(0, 1)
    return (highest - spread * lacking).transpose(0, 1)  # (3, B, H, W) -> (B, 3, H, W)


def invert(images: Tensor) -> Tensor:
    return 1 - images


def solarise(images: Tensor, threshold: Tensor) -> Tensor:
    """What is as bright as the threshold or brighter is inverted."""
    return torch.where(images < expand_per_image(threshold), images, 1 - images)


def solarise_add(images: Tensor, amount: Tensor) -> Tensor:
    """The darker half of the tones is made brighter by an amount."""
    return torch.where(images < 128 / 255, (images + expand_per_image(amount)).clamp(max=1), images)


def posterise(images: Tensor, bits: Tensor) -> Tensor:
    """The upper bits of each level alone; all 8 are the image."""
    step = 2 ** (8 - expand_per_image(bits).round())
    return images - to_levels(images) % step / 255


def autocontrast(images: Tensor) -> Tensor:
    """The darkest tone of each channel becomes 0, the brightest 1."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    spread = high - low
    return torch.where(spread > 0, (images - low) / spread.where(spread > 0, 1), images)


def equalise(images: Tensor) -> Tensor:
    """Levels spread so that each is about as frequent, channel by channel, with Pillow's rounding: level i becomes
    (counts below i + step // 2) // step, where 255 steps are all pixels but those of the brightest level."""
    flat = to_levels(images).long().flatten(2)  # (B, C, H, W) -> (B, C, H * W)
    counts = flat.new_zeros(*flat.shape[:2], 256).scatter_add_(2, flat, torch.ones_like(flat))
    brightest = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - brightest) // 255  # (B, C, 1)
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    spread = table.gather(2, flat).view_as(images).to(images.dtype) / 255
    return torch.where(step.unsqueeze(-1) > 0, spread, images)


def to_levels(images: Tensor) -> Tensor:
    """The nearest of 256 levels, as whole numbers in floats."""
    return (255 * images).round()
