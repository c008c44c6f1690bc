"""Resize and centre crop as the image processors of `transformers` do them with Pillow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PIL import Image

from headwise.errors import UserError

Pair = tuple[int, int]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class ImageFit:
    """Resize an image to `size`, rows and columns, or its shorter side to one number; then centre-crop it to `crop`,
    with black where the image is smaller. None leaves a step out. `resample` is Pillow's number of a filter.

    >>> ImageFit(size=256, resample=3, crop=(224, 224)).resized_shape(300, 600)
    (256, 512)
    """

    size: Pair | int | None
    resample: int
    crop: Pair | None

    @property
    def shape(self) -> Pair | None:
        """Rows and columns of every fitted image; None where they depend on the image."""
        return self.crop or (self.size if isinstance(self.size, tuple) else None)

    def resized_shape(self, rows: int, columns: int) -> Pair:
        """Rows and columns of an image after `size`."""
        if self.size is None:
            return rows, columns
        if isinstance(self.size, tuple):
            return self.size
        longer = int(self.size * max(rows, columns) / min(rows, columns))
        return (longer, self.size) if columns <= rows else (self.size, longer)

    def apply(self, image: Image.Image, rows: int, columns: int) -> Image.Image:
        """Fit an image, which must then have these rows and columns."""
        height, width = self.resized_shape(image.height, image.width)
        if self.crop is None and (height, width) != (rows, columns):
            raise UserError(
                f"image: has {image.width} x {image.height} pixels, and the model reads {columns} x {rows}, to which "
                "its preprocessor_config.json does not resize it; resize it first"
            )
        image = image.resize((width, height), Image.Resampling(self.resample)) if self.size is not None else image
        if self.crop is None:
            return image
        left, top = (width - self.crop[1]) // 2, (height - self.crop[0]) // 2
        return image.crop((left, top, left + self.crop[1], top + self.crop[0]))

    def compute_crop(self, width: int, height: int) -> Box:
        """x0 y0 x1 y1 of the part of an image that is left of it; outside of the image where it is padded."""
        rows, columns = self.resized_shape(height, width)
        if self.crop is None:
            return 0.0, 0.0, float(width), float(height)
        left, top = (columns - self.crop[1]) // 2, (rows - self.crop[0]) // 2
        across, down = width / columns, height / rows
        return left * across, top * down, (left + self.crop[1]) * across, (top + self.crop[0]) * down

    def to_json(self) -> dict[str, Any]:
        return {"size": self.size, "resample": self.resample, "crop": self.crop}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ImageFit:
        size, crop = (
            tuple(value) if isinstance(value, list | tuple) else value for value in (data["size"], data["crop"])
        )
        return cls(size, int(data["resample"]), crop)
