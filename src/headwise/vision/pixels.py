"""The image processor: size, channels and normalisation of images. It takes the place of a text tokeniser."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headwise.text.base import TextlessEncoder
from headwise.text.normalise import PLAIN, Normaliser

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from headwise.vision.fit import ImageFit

SAMPLE = 10_000  # images of which mean and standard deviation are computed


@dataclass(frozen=True)
class Pixels(TextlessEncoder):
    """Images of `height` x `width` pixels, (x - mean) / std in each channel. A file of another size is centre-cropped
    and resized by bicubic interpolation, or as `fit` says.

    >>> import torch
    >>> pixels = Pixels(2, 2, 1, (0.5,), (0.25,))
    >>> pixels.normalise_images(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8))[0, 0, 0, 0].item()
    2.0
    """

    kind: ClassVar[str] = "pixels"
    refusal: ClassVar[str] = "this run reads images, not texts; name image files"
    height: int
    width: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    normalise: Normaliser = PLAIN  # of texts: unused
    fit: ImageFit | None = None
    vocabulary: list[str] = field(default_factory=list, compare=False)  # empty: there are no tokens

    @classmethod
    def from_images(cls, images: np.ndarray) -> Pixels:
        """Take the shape of these images (N, C, H, W), and compute mean and standard deviation of each channel."""
        step = -(-len(images) // SAMPLE)
        sample = images[::step].astype(np.float32) / 255
        mean, std = sample.mean((0, 2, 3), dtype=np.float64), sample.std((0, 2, 3), dtype=np.float64)
        means, deviations = (tuple(round(float(value), 4) for value in values) for values in (mean, std.clip(min=0.01)))
        _, channels, height, width = images.shape
        return cls(height, width, channels, means, deviations)

    def read(self, source: str | Path | Image) -> Tensor:
        """Decode an image to (C, H, W) bytes."""
        import torch

        from headwise.vision.decode import decode_image

        return torch.from_numpy(decode_image(source, (self.height, self.width), self.channels, fit=self.fit))

    def compute_crop(self, width: int, height: int) -> tuple[float, float, float, float]:
        """x0 y0 x1 y1 of the part of an image of this size that `read` returns."""
        from headwise.vision.decode import compute_crop

        return (
            self.fit.compute_crop(width, height) if self.fit else compute_crop(width, height, self.height, self.width)
        )

    def scale(self, images: Tensor) -> Tensor:
        """Convert bytes to numbers from 0 to 1."""
        import torch

        return images.to(torch.get_default_dtype()) / 255 if images.dtype == torch.uint8 else images

    def normalise_images(self, images: Tensor) -> Tensor:
        """Normalise bytes, or numbers from 0 to 1, with mean and standard deviation: (B, C, H, W)."""
        import torch

        x = self.scale(images)
        # filled on the device: a copy from the host would wait for it
        mean, std = (torch.cat([x.new_full((1, 1, 1), each) for each in values]) for values in (self.mean, self.std))
        return (x - mean) / std

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in ("height", "width", "channels", "mean", "std")}
        return data | ({"fit": self.fit.to_json()} if self.fit else {})

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> Pixels:
        height, width, channels = (int(data[name]) for name in ("height", "width", "channels"))
        mean, std = (tuple(map(float, data[name])) for name in ("mean", "std"))
        from headwise.vision.fit import ImageFit

        fit = ImageFit.from_json(data["fit"]) if data.get("fit") else None
        return cls(height, width, channels, mean, std, normalise, fit)
