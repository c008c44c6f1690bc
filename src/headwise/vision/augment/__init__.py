"""Augmentation as batched tensor operations: `(images, targets) -> (images, targets)`.

Images are floats in 0..1, (B, C, H, W); targets are soft labels, (B, L), whose rows add up to 1. Every image of a batch
has its own random draws, from torch's global generator of the images' device, so that a seed reproduces them exactly.
Augmentations that need colour leave greyscale images unchanged.

    >>> import torch
    >>> images, targets = torch.rand(4, 3, 8, 8), torch.eye(4)
    >>> for augment in (ResizedCrop(), Flip(), Mixup(alpha=0.8)):
    ...     images, targets = augment(images, targets)
    >>> images.shape, targets.sum(1).allclose(torch.ones(4))
    (torch.Size([4, 3, 8, 8]), True)
"""

from headwise.vision.augment.base import Augmentation, ImageAugmentation
from headwise.vision.augment.colour import ColourJitter, Grey
from headwise.vision.augment.copies import Copies
from headwise.vision.augment.crop import Flip, ResizedCrop, Shift
from headwise.vision.augment.erase import Cutout, Erase
from headwise.vision.augment.mixing import Cutmix, Mixing, Mixup, Switch
from headwise.vision.augment.rand import RandAugment

__all__ = [
    "Augmentation",
    "ColourJitter",
    "Copies",
    "Cutmix",
    "Cutout",
    "Erase",
    "Flip",
    "Grey",
    "ImageAugmentation",
    "Mixing",
    "Mixup",
    "RandAugment",
    "ResizedCrop",
    "Shift",
    "Switch",
]
