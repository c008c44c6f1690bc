"""Indexed images that are not decoded yet: where their pixels are, targets and names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from PIL import Image

from headwise.errors import UserError
from headwise.utils.cpu import count_cores
from headwise.vision.boxes import Boxes
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

Result = TypeVar("Result")

PARALLEL_BYTES = 2**25  # of files; below, worker processes take longer to start than they save


class ImageSource(Protocol):
    """Encoded images. A damaged one gives a `DamagedImage` as its result."""

    @property
    def files(self) -> tuple[Path, ...]: ...  # all files that the pixels depend on
    @property
    def key(self) -> str: ...  # which images of these files, for the cache key

    def read_headers(self) -> Iterator[ImageHeader | DamagedImage]: ...
    def decode(self, indices: Sequence[int], size: ImageSize, channels: int) -> Iterator[np.ndarray | DamagedImage]: ...


@dataclass(frozen=True)
class ImageIndex:
    """Encoded images with their targets (labels, captions or boxes) and names for messages."""

    source: ImageSource
    targets: Sequence[str] | Sequence[Boxes]
    names: Sequence[str]


@dataclass(frozen=True)
class ImageFiles:
    """A file for each image; `sizes` are the widths and heights that annotations give."""

    files: tuple[Path, ...]
    sizes: tuple[tuple[int, int], ...] = ()
    processes: int = 0  # 0: one per core for large data, else one

    @property
    def key(self) -> str:
        return f"files {self.sizes}"

    def read_headers(self) -> Iterator[ImageHeader | DamagedImage]:
        return self._run(partial(try_decoding, read_header), [(path,) for path in self.files], "looking at images")

    def decode(self, indices: Sequence[int], size: ImageSize, channels: int) -> Iterator[np.ndarray | DamagedImage]:
        annotated = self.sizes or (None,) * len(self.files)
        items = [(self.files[index], size, channels, annotated[index]) for index in indices]
        return self._run(partial(try_decoding, decode_image), items, "decoding images")

    def _run(self, function: Callable[..., Result], items: Sequence[tuple[Any, ...]], title: str) -> Iterator[Result]:
        results = run_parallel(function, items, self.processes or (count_cores() if self._large else 1))
        return show_progress(results, len(items), title) if self._large else results

    @cached_property
    def _large(self) -> bool:
        return sum(stat_file(path)[0] for path in self.files) >= PARALLEL_BYTES


@dataclass(frozen=True)
class StoredImages:
    """Images (N, C, H, W) that are arrays in a few files; `load` reads them on demand."""

    files: tuple[Path, ...]
    load: Callable[[], np.ndarray]
    key: str = "stored"

    @cached_property
    def array(self) -> np.ndarray:
        return self.load()

    def read_headers(self) -> Iterator[ImageHeader | DamagedImage]:
        return (ImageHeader(fingerprint(image.tobytes()), len(image)) for image in self.array)

    def decode(self, indices: Sequence[int], size: ImageSize, channels: int) -> Iterator[np.ndarray | DamagedImage]:
        unchanged = self.array.shape[1:] == (channels, *(size or self.array.shape[2:]))
        for index in indices:
            image = self.array[index]
            yield image if unchanged else fit_image(_to_pillow(image), size, channels)


def _to_pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))  # (C, H, W) -> (H, W[, C])


def index_arrays(
    files: tuple[Path, ...], load: Callable[[], np.ndarray], targets: Sequence[str], key: str = ""
) -> ImageIndex:
    """Index images in arrays; they are named by the first file and their index."""

    def load_checked() -> np.ndarray:
        array = load()
        if len(array) != len(targets):
            raise UserError(f"{files[0]}: has {len(array):,} images and {len(targets):,} labels; copy the files again")
        return array

    names = [f"{files[0]}#{index}" for index in range(len(targets))]
    return ImageIndex(StoredImages(files, load_checked, key or "stored"), targets, names)


def name_labels(numbers: Sequence[int] | np.ndarray, classes: Sequence[str], where: Path) -> list[str]:
    """Convert numbered labels to the names of their classes, or to strings if these are not known."""
    labels = np.asarray(numbers).tolist()
    if classes and not all(0 <= label < len(classes) for label in labels):
        raise UserError(
            f"{where}: has labels from {min(labels)} to {max(labels)}, and {len(classes)} classes have names"
        )
    return [classes[label] for label in labels] if classes else [str(label) for label in labels]


def stat_file(path: Path) -> tuple[int, int]:
    """Size and modification time of a file, by which a change is noticed; zeros if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _is_encodable(name: str) -> bool:
    """Whether a file may have this name: one without null characters and lone surrogates."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def resolve_below(folder: Path, name: str, where: str) -> Path:
    """The path of a file that a list names; it must be below the folder."""
    path = Path(name)
    if not path.name or not _is_encodable(name) or path.anchor or ".." in path.parts:
        raise UserError(f"{where}: {name!r} is not a file below {folder}; write paths that start there")
    return folder / path
