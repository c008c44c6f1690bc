"""timm's evaluation transform (`timm.data.transforms_imagenet_eval`): resize, centre crop.

DISCREPANCY: timm ignores the EXIF orientation of an image and drops its transparency; here, as everywhere in Headwise,
an image is turned upright, and a transparent one is composed over white.
"""

from __future__ import annotations

import logging
from math import floor
from typing import Literal

from headwise.errors import UserError
from headwise.vision.fit import ImageFit

Pair = tuple[int, int]
CropMode = Literal["center", "squash"]
Interpolation = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
INTERPOLATIONS: tuple[Interpolation, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
BICUBIC = INTERPOLATIONS.index("bicubic")  # their order is that of Pillow's numbers
MAX_DIGITS = 8
log = logging.getLogger(__name__)


def build_fit(image: Pair, crop_pct: float, crop_mode: CropMode, interpolation: Interpolation) -> ImageFit:
    """Resize to `image` / `crop_pct`, then crop: "center" keeps the ratio of an image's sides, "squash" does not."""
    rows, columns = scale_sides(image, crop_pct)
    resample = INTERPOLATIONS.index(interpolation)
    if crop_mode == "center" and rows == columns:
        return ImageFit(rows, resample, image, rounding="nearest")
    return ImageFit((rows, columns), resample, image, cover=crop_mode == "center", rounding="nearest")


def scale_sides(image: Pair, crop_pct: float) -> Pair:
    """The size that images are resized to before they are cropped.

    >>> scale_sides((224, 224), 0.9)
    (248, 248)
    """
    return floor(image[0] / crop_pct), floor(image[1] / crop_pct)


def describe_fit(image: Pair, fit: ImageFit | None) -> tuple[float, CropMode, int]:
    """`crop_pct`, `crop_mode` and Pillow's number of the filter. The centre crop of Headwise is written as its nearest
    equivalent: the shorter side is resized first, and whole pixels are cropped.

    >>> describe_fit((224, 224), ImageFit(248, 3, (224, 224), rounding="nearest"))
    (0.9, 'center', 3)
    """
    if fit is None:
        return 1.0, "center", BICUBIC
    if fit.crop is None and isinstance(fit.size, tuple):
        return 1.0, "squash", fit.resample
    if fit.size is None or fit.crop is None:
        raise UserError("preprocessing: timm resizes and crops every image, this model does not; use --to hf")
    size = fit.size if isinstance(fit.size, tuple) else (fit.size, fit.size)
    guesses = [image[0] / (size[0] + part) for part in (0, 0.5)]
    exact = [round(guess, digits) for digits in range(1, MAX_DIGITS) for guess in guesses]
    crop_pct = next((value for value in (*exact, *guesses) if value and scale_sides(image, value) == size), None)
    if crop_pct is None:
        raise UserError(
            f"preprocessing: timm cannot resize to {size[0]} x {size[1]} and crop to {image[0]} x {image[1]} pixels, "
            "as it has one crop_pct for both sides; use --to hf"
        )
    if fit.rounding != "nearest":
        log.warning("preprocessing: timm rounds the place of a crop to the nearest pixel, so it may move by one")
    keeps_ratio = fit.cover or isinstance(fit.size, int)
    return crop_pct, "center" if keeps_ratio else "squash", fit.resample
