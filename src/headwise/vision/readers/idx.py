"""IDX files, plain or gzip: MNIST and data sets in its format (http://yann.lecun.com/exdb/mnist)."""

from __future__ import annotations

import math
import struct
from functools import partial
from pathlib import Path

import numpy as np

from headwise.data.files import open_file
from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.image_index import ImageIndex, index_arrays, name_labels

UINT8_CODE = 8  # the only type that is read
MAX_COMPRESSION = 1100  # gzip compresses by at most this factor: a header that implies more is wrong


def read_idx(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index a file of images and one of labels."""
    if len(paths) != 2:
        raise UserError('[data] format = "idx" takes two files, images and labels')
    images, labels = map(_find_file, paths)
    names = name_labels(_read_array(labels, 1), config.classes, labels)
    return {"": index_arrays((images, labels), partial(_read_pixels, images), names)}


def _find_file(path: Path) -> Path:
    """The file, or the same with .gz if only that exists."""
    compressed = path.with_name(f"{path.name}.gz")
    return compressed if compressed.exists() and not path.exists() else path


def _read_pixels(path: Path) -> np.ndarray:
    return _read_array(path, 3)[:, None]  # (N, H, W) -> (N, C, H, W)


def _read_array(path: Path, dimensions: int) -> np.ndarray:
    """Big-endian: two zero bytes, the type, the number of dimensions, 32 bits for each of them, the values."""
    with open_file(path) as file:
        header = file.read(4 + 4 * dimensions)
        if header[:4] != bytes([0, 0, UINT8_CODE, dimensions]) or len(header) != 4 + 4 * dimensions:
            content = "images (N, H, W)" if dimensions == 3 else "labels"
            raise UserError(f"{path}: is no IDX file of {content} as bytes; the images come first, then the labels")
        shape = struct.unpack(f">{dimensions}I", header[4:])
        size = math.prod(shape)
        possible = size <= path.stat().st_size * (MAX_COMPRESSION if path.suffix == ".gz" else 1)
        values = np.frombuffer(file.read(size + 1) if possible else b"", np.uint8)
    if not size or len(values) != size:
        raise UserError(f"{path}: is not complete: its header says {' x '.join(map(str, shape))} bytes; copy it again")
    return values.reshape(shape)
