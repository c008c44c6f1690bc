"""Images before they are decoded: which there are, what is to be learnt of each, and how to come by the pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from headwise.errors import UserError
from headwise.utils.cpu import count_cores
from headwise.vision.decode import (
    DamagedImage,
    ImageHeader,
    ImageSize,
    decode_image,
    fingerprint,
    fit_image,
    read_header,
    try_decoding,
)
from headwise.vision.workers import run_parallel, show_progress

PARALLEL_BYTES = 2**25  # bytes of files, from which on worker processes save more time than they need to start


class ImageSource(Protocol):
    """Some images. What cannot be decoded is in the place of its result."""

    @property
    def files(self) -> tuple[Path, ...]: ...  # all that the pixels depend on
    @property
    def key(self) -> str: ...  # which of the images in these files

    def looks(self) -> Iterator[ImageHeader | DamagedImage]: ...
    def decoded(
        self, numbers: Sequence[int], size: ImageSize, channels: int
    ) -> Iterator[np.ndarray | DamagedImage]: ...


@dataclass(frozen=True)
class ImageIndex:
    """Pictures with targets (labels, captions, boxes) and names for messages."""

    pictures: ImageSource
    targets: Sequence[Any]
    names: Sequence[str]


@dataclass(frozen=True)
class ImageFiles:
    """Images in files of their own; where a list says their widths and heights, these are `sizes`."""

    files: tuple[Path, ...]
    sizes: tuple[tuple[int, int], ...] = ()
    processes: int = 0  # 0: as many as are worth it

    @property
    def key(self) -> str:
        return f"files {self.sizes}"

    def looks(self) -> Iterator[ImageHeader | DamagedImage]:
        return self._spread(partial(try_decoding, read_header), [(path,) for path in self.files], "looking at images")

    def decoded(self, numbers: Sequence[int], size: ImageSize, channels: int) -> Iterator[np.ndarray | DamagedImage]:
        shown = self.sizes or (None,) * len(self.files)
        items = [(self.files[number], size, channels, shown[number]) for number in numbers]
        return self._spread(partial(try_decoding, decode_image), items, "decoding images")

    def _spread(self, work: Callable[..., Any], items: list[tuple[Any, ...]], what: str) -> Iterator[Any]:
        results = run_parallel(work, items, self.processes or (count_cores() if self._many else 1))
        return show_progress(results, len(items), what) if self._many else results

    @cached_property
    def _many(self) -> bool:
        return sum(stat_file(path)[0] for path in self.files) >= PARALLEL_BYTES


@dataclass(frozen=True)
class StoredImages:
    """Images (N, C, H, W) that lie in few files as arrays; `load` reads them when they are wanted."""

    files: tuple[Path, ...]
    load: Callable[[], np.ndarray]
    key: str = "stored"

    @cached_property
    def array(self) -> np.ndarray:
        return self.load()

    def looks(self) -> Iterator[ImageHeader | DamagedImage]:
        return (ImageHeader(fingerprint(image.tobytes()), len(image)) for image in self.array)

    def decoded(self, numbers: Sequence[int], size: ImageSize, channels: int) -> Iterator[np.ndarray | DamagedImage]:
        as_they_are = self.array.shape[1:] == (channels, *(size or self.array.shape[2:]))
        for number in numbers:
            image = self.array[number]
            yield image if as_they_are else fit_image(_to_pillow(image), size, channels)


def _to_pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))  # (C, H, W) -> (H, W[, C])


def index_arrays(
    files: tuple[Path, ...], load: Callable[[], np.ndarray], targets: Sequence[Any], key: str = ""
) -> ImageIndex:
    """A listing of arrays: images are named by the first file and their number in it."""

    def checked() -> np.ndarray:
        array = load()
        if len(array) != len(targets):
            raise UserError(f"{files[0]}: has {len(array):,} images and {len(targets):,} labels; copy the files again")
        return array

    names = [f"{files[0]}#{number}" for number in range(len(targets))]
    return ImageIndex(StoredImages(files, checked, key or "stored"), targets, names)


def name_labels(numbers: Sequence[int] | np.ndarray, classes: Sequence[str], where: Path) -> list[str]:
    """Numbers as labels: the names of the classes, where these are known."""
    found = np.asarray(numbers).tolist()
    if classes and not all(0 <= number < len(classes) for number in found):
        raise UserError(f"{where}: has labels from {min(found)} to {max(found)}, and {len(classes)} classes have names")
    return [classes[number] for number in found] if classes else [str(number) for number in found]


def stat_file(path: Path) -> tuple[int, int]:
    """Size and time of a file, by which one sees that it has changed; one that cannot be read has neither."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def resolve_below(folder: Path, name: str, where: str) -> Path:
    """A file that a list names; none outside of its folder."""
    path = Path(name)
    if not path.name or "\0" in name or path.anchor or ".." in path.parts:
        raise UserError(f"{where}: '{name}' is not a file below {folder}; write paths that start there")
    return folder / path
