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

Done = TypeVar("Done")
Shape = tuple[int, int] | tuple[()]  # rows and columns; empty: as it is

# Not all that Pillow reads: some formats run other programs (EPS) or name other files.
KINDS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MOST_BYTES = 2**28  # of one file
LONGEST_SIDE = 2**16 - 1  # pixels, as in JPEG; a decoder works for every row, however short it is
DEEP = {"I": 1 / 257, "I;16": 1 / 257, "I;16B": 1 / 257, "I;16L": 1 / 257, "F": 255.0}  # more than 8 bits -> 0..255
GREY = ("1", "L", "LA", "La", *DEEP)


class Damaged(UserError):
    """An image that cannot be decoded, by name."""


class TooLong(ValueError):
    """An image with a side of more than `LONGEST_SIDE` pixels."""


@dataclass(frozen=True)
class Look:
    """What is known of an image before its pixels are decoded."""

    print: int  # 64 bits of its bytes, equal on every machine
    channels: int


def decoded(
    source: str | Path | Image.Image, size: Shape = (), channels: int = 0, shown: tuple[int, int] | None = None
) -> np.ndarray:
    """An image as (C, H, W) bytes, turned as its EXIF data say.

    Boxes hold for the image as their author saw it: where that is known, `shown` is its width and height, and an image
    that has them only before it is turned is not turned.
    """
    if isinstance(source, Image.Image):
        return fitted(ImageOps.exif_transpose(source), size, channels)
    with decoding(source):
        image = opened(read(Path(source)))
        turned = ImageOps.exif_transpose(image)
        if shown and turned.size != shown:
            turned = image
        if shown and turned.size != shown:
            raise Damaged(f"{source}: has {_times(turned.size)} pixels, and its list says {_times(shown)}")
        return fitted(turned, size, channels)


def look(path: Path) -> Look:
    """Reads the file and the header of its image."""
    with decoding(path):
        content = read(path)
        return Look(fingerprint(content), natural_channels(opened(content)))


def attempt(work: Callable[..., Done], *given: Any) -> Done | Damaged:
    """The result, or what is damaged, as a value that a worker process can send."""
    try:
        return work(*given)
    except Damaged as damage:
        return damage


def fitted(image: Image.Image, size: Shape = (), channels: int = 0) -> np.ndarray:
    """(C, H, W) bytes: transparency over white, the middle of the image as large as it can be, smoothly resized."""
    if 0 in image.size:
        raise Damaged(f"image: has {_times(image.size)} pixels, so there is nothing to see; give another")
    plain = in_bytes(image).convert("L" if (channels or natural_channels(image)) == 1 else "RGB")
    rows, columns = size or (plain.height, plain.width)
    if plain.size != (columns, rows):
        box = window(plain.width, plain.height, rows, columns)
        plain = plain.resize((columns, rows), Image.Resampling.BICUBIC, box)
    return np.atleast_3d(np.asarray(plain)).transpose(2, 0, 1).copy()  # (H, W[, C]) -> (C, H, W)


def window(width: int, height: int, rows: int, columns: int) -> tuple[float, float, float, float]:
    """x0 y0 x1 y1 of what is kept of an image: its middle, in the proportions of rows and columns.

    >>> window(200, 100, 10, 10)
    (50.0, 0.0, 150.0, 100.0)
    """
    scale = min(width / columns, height / rows)
    left, top = (max((side - scale * kept) / 2, 0.0) for side, kept in ((width, columns), (height, rows)))
    return left, top, width - left, height - top


def whole_pixels(box: tuple[float, float, float, float]) -> tuple[int, int, int, int]:
    """The pixels that a part of an image, x0 y0 x1 y1, is drawn with: at least one.

    >>> whole_pixels((0.0, 199.5, 1.0, 200.5))
    (0, 200, 1, 201)
    """
    x0, y0, x1, y1 = map(round, box)
    if x0 == x1:
        x0, x1 = floor((box[0] + box[2]) / 2), floor((box[0] + box[2]) / 2) + 1
    if y0 == y1:
        y0, y1 = floor((box[1] + box[3]) / 2), floor((box[1] + box[3]) / 2) + 1
    return x0, y0, x1, y1


def in_bytes(image: Image.Image) -> Image.Image:
    """The image with 8 bits a channel and nothing to be seen through."""
    if image.mode in DEEP:
        values = np.asarray(image, np.float32) * DEEP[image.mode]
        return Image.fromarray(values.round().clip(0, 255).astype(np.uint8))
    if not image.has_transparency_data:
        return image
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white


def natural_channels(image: Image.Image) -> int:
    return 1 if image.mode in GREY else 3


def fingerprint(content: bytes) -> int:
    """64 bits of them, equal on every machine."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def read(path: Path) -> bytes:
    """The bytes of a file of at most `MOST_BYTES`."""
    if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for a writer
        raise Damaged(f"{path}: is not a file")
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise Damaged(f"{path}: has more than {MOST_BYTES >> 20} MB, which is taken for an attack; make it smaller")
    return content


def opened(content: bytes) -> Image.Image:
    """An image of which only the header is read."""
    image = Image.open(BytesIO(content), formats=KINDS)
    if max(image.size) > LONGEST_SIDE:
        raise TooLong
    return image


@contextmanager
def decoding(source: str | Path) -> Iterator[None]:
    """Whatever is said against an image, as one sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about metadata
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            yield
        except Damaged:
            raise
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            limit = f"{Image.MAX_IMAGE_PIXELS:,} pixels"
            raise Damaged(f"{source}: has more than {limit}, which is taken for an attack; make it smaller") from None
        except TooLong:
            limit = f"a side of more than {LONGEST_SIDE:,} pixels"
            raise Damaged(f"{source}: has {limit}, which is taken for an attack; make it smaller") from None
        except Image.UnidentifiedImageError:
            raise Damaged(f"{source}: is not an image, or of a kind that is not read; use PNG or JPEG") from None
        except OSError as error:
            reason = error.strerror or f"is it whole? {error}"
            raise Damaged(f"{source}: cannot be read ({reason})") from None
        except Exception as error:  # decoders raise nearly anything on bytes that are not what they seem
            raise Damaged(f"{source}: is damaged ({error})") from None


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


def shown(source: str | Path | Image.Image) -> Image.Image:
    """An image as people see it: turned as its EXIF data say."""
    if isinstance(source, Image.Image):
        return ImageOps.exif_transpose(source)
    with decoding(source):
        return ImageOps.exif_transpose(opened(read(Path(source))))
