"""The cache of decoded images: one memory-mapped array in a file."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from headwise.data.cache import hash_files, load_or_build, map_array, verify_files
from headwise.errors import UserError
from headwise.vision.decode import DamagedImage, ImageSize
from headwise.vision.image_index import ImageIndex, stat_file

log = logging.getLogger(__name__)

Result = TypeVar("Result")

VERSION = 1  # of how images are decoded; another number decodes everything anew
FILES = ("pixels.bin", "numbers.bin", "prints.bin")
MAX_REPORTED = 5  # damaged images that a warning names


# Of the images in the array, so that a part of a split is a slice of it. "stratified": by fingerprint within each
# class, and every slice has about the same share of each class.
Order = Literal["index", "fingerprint", "stratified"]


@dataclass(frozen=True)
class DecodeSettings:
    """How images are decoded."""

    size: ImageSize = ()
    channels: int = 0  # 0: one if all are greyscale, else three
    skip_damaged: bool = False  # instead of raising an error
    order: Order = "index"


@dataclass(frozen=True)
class DecodedImages:
    """Images (N, C, H, W), the position of each in its index, and its fingerprint."""

    pixels: np.ndarray
    indices: np.ndarray
    fingerprints: np.ndarray
    damaged: tuple[str, ...] = ()  # errors of the images that were skipped

    @classmethod
    def load(cls, folder: Path) -> DecodedImages:
        """Memory-map what `write_images` wrote; raise ValueError if any byte of it has changed."""
        meta = json.loads((folder / "meta.json").read_text())
        verify_files(folder, meta["sha256"])
        pixels, indices, prints = map(map_array, (folder / name for name in FILES), ("uint8", "int64", "uint64"))
        return cls(pixels.reshape(-1, *meta["shape"]), indices, prints, tuple(meta["damaged"]))  # -> (N, C, H, W)


def load_decoded(index: ImageIndex, settings: DecodeSettings, root: Path) -> DecodedImages:
    """Load the decoded images of an index from the cache below `root`, and decode them at the first call."""
    folder = root / f"{_compute_key(index, settings)}-images"
    images = load_or_build(folder, lambda temporary: write_images(temporary, index, settings), DecodedImages.load)
    if images.damaged:
        listed = "\n".join(images.damaged[:MAX_REPORTED])
        more = f"\nand {len(images.damaged) - MAX_REPORTED} others" if len(images.damaged) > MAX_REPORTED else ""
        log.warning("%d damaged images are left out:\n%s%s", len(images.damaged), listed, more)
    return images


def write_images(folder: Path, index: ImageIndex, settings: DecodeSettings) -> None:
    """Read the headers of all images, then decode them into one file."""
    damaged = list[str]()
    headers = dict(_skip_damaged(enumerate(index.source.read_headers()), settings.skip_damaged, damaged))
    prints = {number: header.fingerprint for number, header in headers.items()}
    order = order_images(prints, index.targets, settings.order)
    channels = settings.channels or max((header.channels for header in headers.values()), default=1)
    images = zip(order, index.source.decode(order, settings.size, channels), strict=True)
    shape, written = (0, 0, 0), list[int]()
    with open(folder / "pixels.bin", "wb") as file:
        for number, image in _skip_damaged(images, settings.skip_damaged, damaged):
            if written and image.shape != shape:
                raise UserError(
                    f"{index.names[number]}: has {_format_size(image.shape)} pixels, but {index.names[written[0]]} "
                    f"has {_format_size(shape)}; set data.size to bring all images to one size"
                )
            shape = image.shape
            file.write(np.ascontiguousarray(image).data)
            written.append(number)
    if not written:
        raise UserError(f"{damaged[0]}; and no other image is left, check [data]")
    np.array(written, np.int64).tofile(folder / "numbers.bin")
    np.array([prints[number] for number in written], np.uint64).tofile(folder / "prints.bin")
    meta = {"shape": shape, "damaged": damaged, "sha256": hash_files(folder, *FILES)}
    (folder / "meta.json").write_text(json.dumps(meta))


def order_images(fingerprints: Mapping[int, int], targets: Sequence[Any], order: Order) -> list[int]:
    """The numbers of images in the order of the array, identical images side by side unless it is that of the index.

    Stratified: the n images of a class are spread evenly over the order, at (i + 1/2) / n of it. Identical images with
    several classes count as one of the first class.

    >>> order_images({0: 7, 1: 5, 2: 6, 3: 8}, ["cat", "cat", "dog", "dog"], "stratified")
    [1, 2, 0, 3]
    """
    if order == "index":
        return list(fingerprints)
    if order == "fingerprint":
        return sorted(fingerprints, key=lambda number: fingerprints[number])
    classes = dict[int, str]()  # of each fingerprint
    for number, fingerprint in fingerprints.items():
        classes[fingerprint] = min(targets[number], classes.get(fingerprint, targets[number]))
    members = defaultdict[str, list[int]](list)
    for fingerprint in sorted(classes):
        members[classes[fingerprint]].append(fingerprint)
    places = {
        fingerprint: (rank + 0.5) / len(group) for group in members.values() for rank, fingerprint in enumerate(group)
    }
    return sorted(fingerprints, key=lambda number: (places[fingerprints[number]], fingerprints[number]))


def _skip_damaged(
    results: Iterable[tuple[int, Result | DamagedImage]], skip: bool, damaged: list[str]
) -> Iterator[tuple[int, Result]]:
    """Yield the results without damaged images, which are added to `damaged`, or raised unless `skip`."""
    for number, result in results:
        if not isinstance(result, DamagedImage):
            yield number, result
        elif skip:
            damaged.append(str(result))
        else:
            raise UserError(f'{result}; data.damaged = "skip" leaves out images that cannot be decoded')


def _format_size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[2]}"


def _compute_key(index: ImageIndex, settings: DecodeSettings) -> str:
    """A digest of all that the pixels depend on."""
    files = [(str(path.absolute()), *stat_file(path)) for path in index.source.files]
    classes = index.targets if settings.order == "stratified" else []
    text = json.dumps([VERSION, index.source.key, files, list(vars(settings).values()), list(classes)])
    return sha256(text.encode()).hexdigest()[:24]
