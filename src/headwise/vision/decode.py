"""Image decoding with Pillow: a file -> bytes (C, H, W).

Files are untrusted: any error of a decoder becomes a `DamagedImage`, and memory is limited by `MAX_BYTES` and Pillow's
limit of pixels.
"""

from __future__ import annotations

import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from math import floor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image, ImageOps

from headwise.errors import UserError
from headwise.vision.fit import ImageFit

Result = TypeVar("Result")
ImageSize = tuple[int, int] | tuple[()]  # rows and columns; empty: unchanged

# Not all formats of Pillow: some run other programs (EPS) or name other files.
PILLOW_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MAX_BYTES = 2**28  # of one file
MAX_SIDE = 2**16 - 1  # pixels, as in JPEG; a decoder takes time for every row, however short it is
# modes of more than 8 bits -> the factor to 0..255
DEPTH_SCALES = {"I": 1 / 257, "I;16": 1 / 257, "I;16B": 1 / 257, "I;16L": 1 / 257, "F": 255.0}
GREY_MODES = ("1", "L", "LA", "La", *DEPTH_SCALES)


class DamagedImage(UserError):
    """An image that cannot be decoded."""


class SideTooLong(ValueError):
    """An image with a side of more than `MAX_SIDE` pixels."""


@dataclass(frozen=True)
class ImageHeader:
    """What is known of an image before its pixels are decoded."""

    fingerprint: int  # a 64-bit hash of the file, the same on every machine
    channels: int


def decode_image(
    source: str | Path | Image.Image,
    size: ImageSize = (),
    channels: int = 0,
    annotated: tuple[int, int] | None = None,
    fit: ImageFit | None = None,
) -> np.ndarray:
    """Decode an image to (C, H, W) bytes and apply its EXIF orientation. `fit` resizes it in another way.

    Boxes refer to the image as its annotation describes it: `annotated` is the width and height given there. An image
    that has them only without its EXIF orientation is not transposed.
    """
    if isinstance(source, Image.Image):
        return fit_image(ImageOps.exif_transpose(source), size, channels, fit)
    with translate_errors(source):
        raw = open_image(read_bytes(Path(source)))
        image = ImageOps.exif_transpose(raw)
        if annotated and image.size != annotated:
            image = raw
        if annotated and image.size != annotated:
            sizes = f"has {_format_size(image.size)} pixels, and its annotation says {_format_size(annotated)}"
            raise DamagedImage(f"{source}: {sizes}")
        return fit_image(image, size, channels, fit)


def load_upright(source: str | Path | Image.Image) -> Image.Image:
    """Load an image as Pillow has it, with its EXIF orientation applied."""
    if isinstance(source, Image.Image):
        return ImageOps.exif_transpose(source)
    with translate_errors(source):
        return ImageOps.exif_transpose(open_image(read_bytes(Path(source))))


def decode_upright(content: bytes, name: str, max_pixels: int) -> Image.Image:
    """Decode the bytes of an image file, with the EXIF orientation applied."""
    with translate_errors(name):
        image = open_image(content)
        if image.width * image.height > max_pixels:
            raise DamagedImage(f"{name}: has more than {max_pixels:,} pixels; make it smaller")
        image.load()
        return ImageOps.exif_transpose(image)


def read_header(path: Path) -> ImageHeader:
    """Hash a file and read the header of its image."""
    with translate_errors(path):
        content = read_bytes(path)
        return ImageHeader(fingerprint(content), count_channels(open_image(content)))


def try_decoding(function: Callable[..., Result], *arguments: Any) -> Result | DamagedImage:
    """Call a function and return its `DamagedImage` instead of raising it: a worker process can send it."""
    try:
        return function(*arguments)
    except DamagedImage as error:
        return error


def fit_image(image: Image.Image, size: ImageSize = (), channels: int = 0, fit: ImageFit | None = None) -> np.ndarray:
    """Compose an image over white, centre-crop and resize it (bicubic, antialiased, or as `fit` says): (C, H, W)
    bytes."""
    if 0 in image.size:
        raise DamagedImage(f"image: has {_format_size(image.size)} pixels, so it is empty; give another")
    opaque = to_8_bit(image).convert("L" if (channels or count_channels(image)) == 1 else "RGB")
    rows, columns = size or (opaque.height, opaque.width)
    if fit is not None:
        opaque = fit.apply(opaque, rows, columns)
    elif opaque.size != (columns, rows):
        box = compute_crop(opaque.width, opaque.height, rows, columns)
        opaque = opaque.resize((columns, rows), Image.Resampling.BICUBIC, box)
    return np.atleast_3d(np.asarray(opaque)).transpose(2, 0, 1).copy()  # (H, W[, C]) -> (C, H, W)


def compute_crop(width: int, height: int, rows: int, columns: int) -> tuple[float, float, float, float]:
    """x0 y0 x1 y1 of the largest centre crop with the proportions of rows and columns.

    >>> compute_crop(200, 100, 10, 10)
    (50.0, 0.0, 150.0, 100.0)
    """
    scale = min(width / columns, height / rows)
    left, top = (max((side - scale * cropped) / 2, 0.0) for side, cropped in ((width, columns), (height, rows)))
    return left, top, width - left, height - top


def round_box(box: tuple[float, float, float, float]) -> tuple[int, int, int, int]:
    """Round x0 y0 x1 y1 to whole pixels, at least one in each direction.

    >>> round_box((0.0, 199.5, 1.0, 200.5))
    (0, 200, 1, 201)
    """
    x0, y0, x1, y1 = map(round, box)
    if x0 == x1:
        x0, x1 = floor((box[0] + box[2]) / 2), floor((box[0] + box[2]) / 2) + 1
    if y0 == y1:
        y0, y1 = floor((box[1] + box[3]) / 2), floor((box[1] + box[3]) / 2) + 1
    return x0, y0, x1, y1


def to_8_bit(image: Image.Image) -> Image.Image:
    """Convert an image to 8 bits a channel without transparency."""
    if image.mode in DEPTH_SCALES:
        values = np.asarray(image, np.float32) * DEPTH_SCALES[image.mode]
        return Image.fromarray(values.round().clip(0, 255).astype(np.uint8))
    if not image.has_transparency_data:
        return image
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white


def count_channels(image: Image.Image) -> int:
    """1 for greyscale modes, 3 for all others."""
    return 1 if image.mode in GREY_MODES else 3


def fingerprint(content: bytes) -> int:
    """A 64-bit hash of bytes, the same on every machine."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def read_bytes(path: Path) -> bytes:
    """Read a file of at most `MAX_BYTES`."""
    if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for a writer
        raise DamagedImage(f"{path}: is not a file")
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise DamagedImage(f"{path}: has more than {MAX_BYTES >> 20} MB; make it smaller")
    return content


def open_image(content: bytes) -> Image.Image:
    """Open an image and read its header; its pixels are not decoded yet."""
    image = Image.open(BytesIO(content), formats=PILLOW_FORMATS)
    if max(image.size) > MAX_SIDE:
        raise SideTooLong
    return image


@contextmanager
def translate_errors(source: str | Path) -> Iterator[None]:
    """Turn any error of a decoder into a `DamagedImage` that names the image."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about metadata
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            yield
        except DamagedImage:
            raise
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            excess = f"has more than {Image.MAX_IMAGE_PIXELS:,} pixels"
            raise DamagedImage(f"{source}: {excess}, as a decompression bomb has; make it smaller") from None
        except SideTooLong:
            excess = f"has a side of more than {MAX_SIDE:,} pixels"
            raise DamagedImage(f"{source}: {excess}, as a decompression bomb has; make it smaller") from None
        except Image.UnidentifiedImageError:
            raise DamagedImage(f"{source}: is not an image, or its format is not supported; use PNG or JPEG") from None
        except OSError as error:
            reason = error.strerror or f"it may be truncated: {error}"
            raise DamagedImage(f"{source}: cannot be read ({reason})") from None
        except Exception as error:  # decoders raise nearly any exception on malformed bytes
            raise DamagedImage(f"{source}: is damaged ({error})") from None


def _format_size(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
