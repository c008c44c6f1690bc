"""NumPy archives (.npz) of images and labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

import numpy as np

from headwise.data.files import open_file
from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.image_index import ImageIndex, index_arrays, name_labels

if TYPE_CHECKING:
    from numpy.lib.npyio import NpzFile

PART_ARRAYS = {  # part -> its arrays of images and labels
    "": ("images", "labels"),
    "train": ("x_train", "y_train"),
    "valid": ("x_valid", "y_valid"),
    "test": ("x_test", "y_test"),
}
MAX_BYTES = 2**34  # unpacked
MAX_RATIO, MAX_SMALL = 100, 2**26  # unpacked bytes for each packed one, beyond those that any archive may have


def read_npz(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index the parts of an archive. Labels are numbers or strings; `classes` may name the numbers."""
    if len(paths) != 1:
        raise UserError('[data] format = "npz" takes one file')
    (path,) = paths
    with _open_archive(path) as file:
        keys = {part: pair for part, pair in PART_ARRAYS.items() if set(pair) <= set(file)}
        if not keys:
            known = " or ".join(" and ".join(pair) for pair in PART_ARRAYS.values())
            raise UserError(f"{path}: has the arrays {', '.join(file) or 'none'}; name them {known}")
        classes = config.classes or (tuple(map(str, _read_array(file, "classes"))) if "classes" in file else ())
        labels = {part: _read_labels(_read_array(file, y), classes, path) for part, (_, y) in keys.items()}
    return {part: index_arrays(paths, partial(_read_pixels, path, x), labels[part], x) for part, (x, _) in keys.items()}


@contextmanager
def _open_archive(path: Path) -> Iterator[NpzFile]:
    """Open an archive; arrays of Python objects are refused, as unpickling them could run code."""
    with open_file(path) as raw:
        try:
            with ZipFile(raw) as archive:
                size = sum(member.file_size for member in archive.infolist())
                packed = sum(member.compress_size for member in archive.infolist())
            if size > min(MAX_BYTES, MAX_SMALL + MAX_RATIO * packed):
                raise UserError(f"{path}: unpacks to {size >> 20:,} MB, as a decompression bomb does; make it smaller")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                yield file
        except UserError:
            raise
        except (BadZipFile, ValueError, MemoryError, NotImplementedError, RuntimeError) as error:
            raise UserError(f"{path}: is not a complete .npz file of plain arrays ({error})") from None


def _read_array(file: NpzFile, key: str) -> np.ndarray:
    values = file[key]
    if not isinstance(values, np.ndarray):  # NumPy returns the bytes of a member that is no array
        raise ValueError(f"{key} is no array")
    return values


def _read_labels(values: np.ndarray, classes: tuple[str, ...], path: Path) -> list[str]:
    flat = values.reshape(-1)  # (N,) or (N, 1) -> (N,)
    if np.issubdtype(flat.dtype, np.integer):
        return name_labels(flat, classes, path)
    if flat.dtype.kind == "U":
        return flat.tolist()
    raise UserError(f"{path}: labels are integers or strings, not {flat.dtype}")


def _read_pixels(path: Path, key: str) -> np.ndarray:
    """Convert (N, H, W), (N, H, W, C) or (N, C, H, W), bytes or numbers from 0 to 1, to (N, C, H, W) bytes."""
    with _open_archive(path) as file:
        values = _read_array(file, key)
    if values.ndim == 3:
        values = values[:, None]
    elif values.ndim == 4 and values.shape[3] in (1, 3):
        values = values.transpose(0, 3, 1, 2)
    if values.ndim != 4 or values.shape[1] not in (1, 3) or not values.size:
        raise UserError(
            f"{path}: {key} has the shape {values.shape}; images are (N, H, W), or with 1 or 3 channels last"
        )
    if values.dtype == np.uint8:
        return values
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        return (values * 255).round().astype(np.uint8)
    if values.dtype.kind in "iu" and low >= 0 and high <= 255:
        return values.astype(np.uint8)
    raise UserError(f"{path}: {key} has values from {low:g} to {high:g}; images are bytes or numbers from 0 to 1")
