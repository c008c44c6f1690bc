"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009): as binary files, or as PNGs of which each line is an image."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import numpy as np

from headwise.data.files import open_file
from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.decode import decode_image
from headwise.vision.image_index import ImageIndex, index_arrays, name_labels

SIDE, CHANNELS = 32, 3
PIXELS = CHANNELS * SIDE * SIDE
# bytes of labels in a record, of which the last is used -> the file of class names beside it
CLASS_FILES = {1: "batches.meta.txt", 2: "fine_label_names.txt"}


def read_cifar(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index records of a label (CIFAR-100: a coarse and a fine one) and 3 x 32 x 32 bytes."""
    files = [_map_records(path) for path in paths]
    if len({records.shape[1] for records in files}) > 1:
        raise UserError("[data] some of these files are of CIFAR-10, others of CIFAR-100; name those of one set")
    label_bytes = files[0].shape[1] - PIXELS
    numbers = np.concatenate([records[:, label_bytes - 1] for records in files])
    class_file = paths[0].with_name(CLASS_FILES[label_bytes])
    classes = config.classes or (tuple(class_file.read_text().split()) if class_file.exists() else ())
    labels = name_labels(numbers, classes, paths[0])
    return {"": index_arrays(paths, partial(_read_pixels, files), labels)}


def _map_records(path: Path) -> np.ndarray:
    """Memory-map a file: (N, label bytes + pixels)."""
    with open_file(path):
        size = path.stat().st_size
    sizes = [PIXELS + label_bytes for label_bytes in CLASS_FILES if size and size % (PIXELS + label_bytes) == 0]
    if not sizes:
        raise UserError(f"{path}: is no complete binary file of CIFAR: it has {size:,} bytes; copy it again")
    return np.memmap(path, np.uint8, mode="r").reshape(-1, sizes[0])  # (bytes,) -> (N, record)


def _read_pixels(files: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([records[:, -PIXELS:] for records in files]).reshape(-1, CHANNELS, SIDE, SIDE)


def read_rows(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index image files of which each line is a square image, with a JSON list of the labels of all."""
    *images, label_file = paths
    if not images or label_file.suffix != ".json":
        raise UserError('[data] format = "rows" takes files of images, then the .json file of their labels')
    with open_file(label_file) as file:
        content = file.read()
    try:
        numbers = np.array(json.loads(content))
        valid = numbers.ndim == 1 and np.issubdtype(numbers.dtype, np.integer)
    except (ValueError, RecursionError):
        valid = False
    if not valid:
        raise UserError(f"{label_file}: is not a JSON list of numbers, one for each image")
    labels = name_labels(numbers, config.classes, label_file)
    return {"": index_arrays((*images, label_file), partial(_read_lines, images), labels)}


def _read_lines(paths: list[Path]) -> np.ndarray:
    files = [decode_image(path) for path in paths]
    for path, pixels in zip(paths, files, strict=True):
        if math.isqrt(pixels.shape[2]) ** 2 != pixels.shape[2] or pixels.shape[2] != files[0].shape[2]:
            raise UserError(f"{path}: its lines are {pixels.shape[2]} pixels long, which is no square image")
    lines = np.concatenate(files, axis=1)  # (C, N, H * W)
    side = math.isqrt(lines.shape[2])
    return lines.transpose(1, 0, 2).reshape(lines.shape[1], -1, side, side)  # (C, N, H * W) -> (N, C, H, W)
