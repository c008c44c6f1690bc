"""Decoded images as one array in a file, which is mapped into memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import numpy as np

from headwise.data.cache import hash_files, load_or_build, map_array, verify_files
from headwise.errors import UserError
from headwise.vision.decode import DamagedImage, ImageSize
from headwise.vision.image_index import ImageIndex, stat_file

log = logging.getLogger(__name__)

Result = TypeVar("Result")

VERSION = 1  # of how images are decoded; another number decodes everything anew
FILES = ("pixels.bin", "numbers.bin", "prints.bin")
MAX_REPORTED = 5  # damaged images that are named


@dataclass(frozen=True)
class DecodeSettings:
    """How images are decoded."""

    size: ImageSize = ()
    channels: int = 0  # 0: one where all are grey, else three
    skip: bool = False  # leave out what is damaged, instead of refusing it
    by_print: bool = False  # in the order of fingerprints, so that a range of these is a part of the array


@dataclass(frozen=True)
class DecodedImages:
    """Images (N, C, H, W), the number of each in its listing, and its fingerprint."""

    pixels: np.ndarray
    numbers: np.ndarray
    prints: np.ndarray
    damaged: tuple[str, ...] = ()  # what was left out, and why

    @classmethod
    def open(cls, folder: Path) -> DecodedImages:
        """Map what `write` has written; ValueError if any byte of it has changed."""
        meta = json.loads((folder / "meta.json").read_text())
        verify_files(folder, meta["sha256"])
        pixels, numbers, prints = map(map_array, (folder / name for name in FILES), ("uint8", "int64", "uint64"))
        return cls(pixels.reshape(-1, *meta["shape"]), numbers, prints, tuple(meta["damaged"]))  # (...) -> (N, C, H, W)


def load_decoded(listing: ImageIndex, way: DecodeSettings, root: Path) -> DecodedImages:
    """The images of a listing, decoded at the first call and kept below `root`."""
    found = load_or_build(
        root / f"{_compute_key(listing, way)}-images",
        lambda aside: write_images(aside, listing, way),
        DecodedImages.open,
    )
    if found.damaged:
        some = "\n".join(found.damaged[:MAX_REPORTED])
        more = f"\nand {len(found.damaged) - MAX_REPORTED} others" if len(found.damaged) > MAX_REPORTED else ""
        log.warning("%d damaged images are left out:\n%s%s", len(found.damaged), some, more)
    return found


def write_images(folder: Path, listing: ImageIndex, way: DecodeSettings) -> None:
    """Look at all images, then decode them one after the other into one file."""
    pictures, damaged = listing.pictures, list[str]()
    looks = dict(_skip_damaged(enumerate(pictures.looks()), way.skip, damaged))
    order = sorted(looks, key=lambda number: looks[number].print) if way.by_print else list(looks)
    channels = way.channels or max((each.channels for each in looks.values()), default=1)
    images = zip(order, pictures.decoded(order, way.size, channels), strict=True)
    shape, kept = (0, 0, 0), list[int]()
    with open(folder / "pixels.bin", "wb") as file:
        for number, image in _skip_damaged(images, way.skip, damaged):
            if kept and image.shape != shape:
                raise UserError(
                    f"{listing.names[number]}: has {_format_size(image.shape)} pixels, but {listing.names[kept[0]]} has "
                    f"{_format_size(shape)}; set data.size to bring all images to one size"
                )
            shape = image.shape
            file.write(np.ascontiguousarray(image).data)
            kept.append(number)
    if not kept:
        raise UserError(f"{damaged[0]}; and no other image is left, check [data]")
    np.array(kept, np.int64).tofile(folder / "numbers.bin")
    np.array([looks[number].print for number in kept], np.uint64).tofile(folder / "prints.bin")
    meta = {"shape": shape, "damaged": damaged, "sha256": hash_files(folder, *FILES)}
    (folder / "meta.json").write_text(json.dumps(meta))


def _skip_damaged(
    results: Iterable[tuple[int, Result | DamagedImage]], skip: bool, damaged: list[str]
) -> Iterator[tuple[int, Result]]:
    """The results that are none of damage, which is refused or else remembered."""
    for number, result in results:
        if not isinstance(result, DamagedImage):
            yield number, result
        elif skip:
            damaged.append(str(result))
        else:
            raise UserError(f'{result}; data.damaged = "skip" leaves out images that cannot be decoded')


def _format_size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[2]}"


def _compute_key(listing: ImageIndex, way: DecodeSettings) -> str:
    """A digest of all that the pixels depend on."""
    files = [(str(path.absolute()), *stat_file(path)) for path in listing.pictures.files]
    text = json.dumps([VERSION, listing.pictures.key, files, list(vars(way).values())])
    return sha256(text.encode()).hexdigest()[:24]
