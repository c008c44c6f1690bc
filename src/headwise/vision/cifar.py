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
# Bytes of a record before its pixels, the last of which is the label -> the file beside with names of labels.
LABEL_FILES = {1: "batches.meta.txt", 2: "fine_label_names.txt"}


def read_cifar(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Records of a label (CIFAR-100: a coarse and a fine one) and 3 x 32 x 32 bytes."""
    records = [_map_records(path) for path in paths]
    if len({each.shape[1] for each in records}) > 1:
        raise UserError("[data] some of these files are of CIFAR-10, others of CIFAR-100; name those of one set")
    before = records[0].shape[1] - PIXELS
    numbers = np.concatenate([each[:, before - 1] for each in records])
    beside = paths[0].with_name(LABEL_FILES[before])
    classes = config.classes or (tuple(beside.read_text().split()) if beside.exists() else ())
    targets = name_labels(numbers, classes, paths[0])
    return {"": index_arrays(paths, partial(_read_pixels, records), targets)}


def _map_records(path: Path) -> np.ndarray:
    """(N, label bytes + pixels), mapped."""
    with open_file(path):
        size = path.stat().st_size
    fits = [PIXELS + before for before in LABEL_FILES if size and size % (PIXELS + before) == 0]
    if not fits:
        raise UserError(f"{path}: is no binary file of CIFAR, or not whole: it has {size:,} bytes; copy it again")
    return np.memmap(path, np.uint8, mode="r").reshape(-1, fits[0])  # (bytes,) -> (N, record)


def _read_pixels(records: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([each[:, -PIXELS:] for each in records]).reshape(-1, CHANNELS, SIDE, SIDE)


def read_rows(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Image files of which each line is a square image, then a JSON list of the labels of all."""
    *images, labels = paths
    if not images or labels.suffix != ".json":
        raise UserError('[data] format = "rows" takes files of images, then the .json file of their labels')
    with open_file(labels) as file:
        content = file.read()
    try:
        numbers = np.array(json.loads(content))
        whole = numbers.ndim == 1 and np.issubdtype(numbers.dtype, np.integer)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise UserError(f"{labels}: is not a JSON list of numbers, one for each image")
    return {
        "": index_arrays((*images, labels), partial(_read_lines, images), name_labels(numbers, config.classes, labels))
    }


def _read_lines(paths: list[Path]) -> np.ndarray:
    files = [decode_image(path) for path in paths]
    for path, pixels in zip(paths, files, strict=True):
        if math.isqrt(pixels.shape[2]) ** 2 != pixels.shape[2] or pixels.shape[2] != files[0].shape[2]:
            raise UserError(f"{path}: its lines are {pixels.shape[2]} pixels long, which is no square image")
    lines = np.concatenate(files, axis=1)  # (C, N, H * W)
    side = math.isqrt(lines.shape[2])
    return lines.transpose(1, 0, 2).reshape(lines.shape[1], -1, side, side)  # (C, N, H * W) -> (N, C, H, W)
