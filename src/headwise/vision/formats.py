"""How files hold images: a reader for each `data.format`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from headwise.data.files import read_lines
from headwise.errors import UserError
from headwise.vision.annotations import read_captions, read_coco
from headwise.vision.cifar import read_cifar, read_rows
from headwise.vision.config import ImagesConfig
from headwise.vision.folders import read_folders
from headwise.vision.idx import read_idx
from headwise.vision.image_index import ImageIndex, index_arrays, name_labels
from headwise.vision.npz import read_npz

# Paths -> the parts in them; one that is called "" is whatever the paths were given for.
Reader = Callable[[tuple[Path, ...], ImagesConfig], dict[str, ImageIndex]]


def read_digits(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Lines of 8 x 8 numbers from 0 to 16 and a label: scikit-learn's digits (Alpaydin & Kaynak 1998)."""
    try:
        rows = np.array([line.split(",") for _, line in read_lines(paths[0])], float).astype(int)
        values, labels = rows[:, :64], rows[:, 64]
    except (ValueError, IndexError):
        raise UserError(f"{paths[0]}: is not scikit-learn's file of digits") from None
    pixels = (values * 255 / 16).round().astype(np.uint8).reshape(-1, 1, 8, 8)  # (N, 64) -> (N, C, H, W)
    return {"": index_arrays(paths, lambda: pixels, name_labels(labels, config.classes, paths[0]))}


FORMATS: dict[str, Reader] = {
    "folders": read_folders,
    "idx": read_idx,
    "cifar": read_cifar,
    "rows": read_rows,
    "npz": read_npz,
    "coco": read_coco,
    "captions": read_captions,
    "digits": read_digits,
}
UNLABELLED = ("coco", "captions")  # what is to be learnt are boxes and words, no labels
