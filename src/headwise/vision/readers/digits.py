"""scikit-learn's CSV of handwritten digits (Alpaydin & Kaynak 1998)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headwise.data.files import read_lines
from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.image_index import ImageIndex, index_arrays, name_labels


def read_digits(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index lines of 8 x 8 numbers from 0 to 16 and a label."""
    try:
        rows = np.array([line.split(",") for _, line in read_lines(paths[0])], float).astype(int)
        values, labels = rows[:, :64], rows[:, 64]
    except (ValueError, IndexError):
        raise UserError(f"{paths[0]}: is not scikit-learn's file of digits") from None
    pixels = (values * 255 / 16).round().astype(np.uint8).reshape(-1, 1, 8, 8)  # (N, 64) -> (N, C, H, W)
    return {"": index_arrays(paths, lambda: pixels, name_labels(labels, config.classes, paths[0]))}
