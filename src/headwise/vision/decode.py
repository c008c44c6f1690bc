"""One image file -> bytes (C, H, W), with Pillow.

Files are foreign: what a decoder says against one becomes a `Damaged` with one sentence, and none may take more memory
than `MOST_BYTES` and Pillow's own limit on pixels allow.
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

Result = TypeVar("Done")
ImageSize = tuple[int, int] | tuple[()]  # rows and columns; empty: as it is

# Not all that Pillow reads: some formats run other programs (EPS) or name other files.
PILLOW_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MAX_BYTES = 2**28  # of one file
MAX_SIDE = 2**16 - 1  # pixels, as in JPEG; a decoder works for every row, however short it is
DEPTH_SCALES = {
    "I": 1 / 257,
    "I;16": 1 / 257,
    "I;16B": 1 / 257,
    "I;16L": 1 / 257,
    "F": 255.0,
}  # more than 8 bits -> 0..255
GREY_MODES = ("1", "L", "LA", "La", *DEPTH_SCALES)


class DamagedImage(UserError):
    """An image that cannot be decoded, by name."""


class SideTooLong(ValueError):
    """An image with a side of more than `LONGEST_SIDE` pixels."""


@dataclass(frozen=True)
class ImageHeader:
    """What is known of an image before its pixels are decoded."""

    print: int  # 64 bits of its bytes, equal on every machine
    channels: int


def decode_image(
    source: str | Path | Image.Image, size: ImageSize = (), channels: int = 0, shown: tuple[int, int] | None = None
) -> np.ndarray:
    """An image as (C, H, W) bytes, turned as its EXIF data say.

    Boxes hold for the image as their author saw it: where that is known, `shown` is its width and height, and an image
    that has them only before it is turned is not turned.
    """
    if isinstance(source, Image.Image):
        return fit_image(ImageOps.exif_transpose(source), size, channels)
    with translate_errors(source):
        image = open_image(read_bytes(Path(source)))
        turned = ImageOps.exif_transpose(image)
        if shown and turned.size != shown:
            turned = image
        if shown and turned.size != shown:
            raise DamagedImage(
                f"{source}: has {_format_size(turned.size)} pixels, and its list says {_format_size(shown)}"
            )
        return fit_image(turned, size, channels)


def read_header(path: Path) -> ImageHeader:
    """Reads the file and the header of its image."""
    with translate_errors(path):
        content = read_bytes(path)
        return ImageHeader(fingerprint(content), count_channels(open_image(content)))


def try_decoding(work: Callable[..., Result], *given: Any) -> Result | DamagedImage:
    """The result, or what is damaged, as a value that a worker process can send."""
    try:
        return work(*given)
    except DamagedImage as damage:
        return damage


def fit_image(image: Image.Image, size: ImageSize = (), channels: int = 0) -> np.ndarray:
    """(C, H, W) bytes: transparency over white, the middle of the image as large as it can be, smoothly resized."""
    if 0 in image.size:
        raise DamagedImage(f"image: has {_format_size(image.size)} pixels, so there is nothing to see; give another")
    plain = to_8_bit(image).convert("L" if (channels or count_channels(image)) == 1 else "RGB")
    rows, columns = size or (plain.height, plain.width)
    if plain.size != (columns, rows):
        box = compute_crop(plain.width, plain.height, rows, columns)
        plain = plain.resize((columns, rows), Image.Resampling.BICUBIC, box)
    return np.atleast_3d(np.asarray(plain)).transpose(2, 0, 1).copy()  # (H, W[, C]) -> (C, H, W)


def compute_crop(width: int, height: int, rows: int, columns: int) -> tuple[float, float, float, float]:
    """x0 y0 x1 y1 of what is kept of an image: its middle, in the proportions of rows and columns.

    >>> compute_crop(200, 100, 10, 10)
    (50.0, 0.0, 150.0, 100.0)
    """
    scale = min(width / columns, height / rows)
    left, top = (max((side - scale * kept) / 2, 0.0) for side, kept in ((width, columns), (height, rows)))
    return left, top, width - left, height - top


def round_box(box: tuple[float, float, float, float]) -> tuple[int, int, int, int]:
    """The pixels that a part of an image, x0 y0 x1 y1, is drawn with: at least one.

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
    """The image with 8 bits a channel and nothing to be seen through."""
    if image.mode in DEPTH_SCALES:
        values = np.asarray(image, np.float32) * DEPTH_SCALES[image.mode]
        return Image.fromarray(values.round().clip(0, 255).astype(np.uint8))
    if not image.has_transparency_data:
        return image
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white


def count_channels(image: Image.Image) -> int:
    return 1 if image.mode in GREY_MODES else 3


def fingerprint(content: bytes) -> int:
    """64 bits of them, equal on every machine."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file of at most `MOST_BYTES`."""
    if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for a writer
        raise DamagedImage(f"{path}: is not a file")
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise DamagedImage(f"{path}: has more than {MAX_BYTES >> 20} MB, which is taken for an attack; make it smaller")
    return content


def open_image(content: bytes) -> Image.Image:
    """An image of which only the header is read."""
    image = Image.open(BytesIO(content), formats=PILLOW_FORMATS)
    if max(image.size) > MAX_SIDE:
        raise SideTooLong
    return image


@contextmanager
def translate_errors(source: str | Path) -> Iterator[None]:
    """Whatever is said against an image, as one sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about metadata
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            yield
        except DamagedImage:
            raise
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            limit = f"{Image.MAX_IMAGE_PIXELS:,} pixels"
            raise DamagedImage(
                f"{source}: has more than {limit}, which is taken for an attack; make it smaller"
            ) from None
        except SideTooLong:
            limit = f"a side of more than {MAX_SIDE:,} pixels"
            raise DamagedImage(f"{source}: has {limit}, which is taken for an attack; make it smaller") from None
        except Image.UnidentifiedImageError:
            raise DamagedImage(f"{source}: is not an image, or of a kind that is not read; use PNG or JPEG") from None
        except OSError as error:
            reason = error.strerror or f"is it whole? {error}"
            raise DamagedImage(f"{source}: cannot be read ({reason})") from None
        except Exception as error:  # decoders raise nearly anything on bytes that are not what they seem
            raise DamagedImage(f"{source}: is damaged ({error})") from None


def _format_size(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


def load_upright(source: str | Path | Image.Image) -> Image.Image:
    """An image as people see it: turned as its EXIF data say."""
    if isinstance(source, Image.Image):
        return ImageOps.exif_transpose(source)
    with translate_errors(source):
        return ImageOps.exif_transpose(open_image(read_bytes(Path(source))))
