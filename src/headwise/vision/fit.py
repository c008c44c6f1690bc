"""Resize and centre crop with Pillow, as the image processors of `transformers` and the transforms of timm do them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from PIL import Image

from headwise.errors import UserError

Pair = tuple[int, int]
Box = tuple[float, float, float, float]
Rounding = Literal["down", "nearest"]


@dataclass(frozen=True)
class ImageFit:
    """Resize an image to `size`, rows and columns, or its shorter side to one number; then centre-crop it to `crop`,
    with black where the image is smaller. None leaves a step out. `resample` is Pillow's number of a filter.

    With `cover`, an image keeps the ratio of its sides, and is resized to cover the rows and columns of `size`.
    `rounding` is that of the crop's offset: down in `transformers`, to the nearest pixel in torchvision and timm.

    >>> ImageFit(size=256, resample=3, crop=(224, 224)).resized_shape(300, 600)
    (256, 512)
    >>> ImageFit(size=(20, 30), resample=3, crop=(20, 30), cover=True).resized_shape(50, 60)
    (25, 30)
    """

    size: Pair | int | None
    resample: int
    crop: Pair | None
    cover: bool = False
    rounding: Rounding = "down"

    @property
    def shape(self) -> Pair | None:
        """Rows and columns of every fitted image; None where they depend on the image."""
        return self.crop or (self.size if isinstance(self.size, tuple) and not self.cover else None)

    def resized_shape(self, rows: int, columns: int) -> Pair:
        """Rows and columns of an image after `size`."""
        if self.size is None:
            return rows, columns
        if isinstance(self.size, tuple):
            if not self.cover:
                return self.size
            ratio = min(rows / self.size[0], columns / self.size[1])
            return round(rows / ratio), round(columns / ratio)
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
        left, top = self._find_offset(width, self.crop[1]), self._find_offset(height, self.crop[0])
        return image.crop((left, top, left + self.crop[1], top + self.crop[0]))

    def compute_crop(self, width: int, height: int) -> Box:
        """x0 y0 x1 y1 of the part of an image that is left of it; outside of the image where it is padded."""
        rows, columns = self.resized_shape(height, width)
        if self.crop is None:
            return 0.0, 0.0, float(width), float(height)
        left, top = self._find_offset(columns, self.crop[1]), self._find_offset(rows, self.crop[0])
        across, down = width / columns, height / rows
        return left * across, top * down, (left + self.crop[1]) * across, (top + self.crop[0]) * down

    def _find_offset(self, side: int, cropped: int) -> int:
        """The first pixel of a side that is kept; negative where the side is padded."""
        if self.rounding == "down":
            return (side - cropped) // 2
        return round((side - cropped) / 2) if side >= cropped else -((cropped - side) // 2)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ImageFit:
        size, crop = (
            tuple(value) if isinstance(value, list | tuple) else value for value in (data["size"], data["crop"])
        )
        return cls(size, int(data["resample"]), crop, bool(data["cover"]), data["rounding"])
