"""Small TOML files of matrices: read, validated and checked for shape, with errors that name file and key."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headwise.config.base import Config, Problems, validate
from headwise.errors import UserError
from headwise.utils.files import parse_toml, read_bytes

Numbers = tuple[tuple[float, ...], ...]
MAX_SIZE = 12  # rows or columns; more would not be readable

Example = TypeVar("Example", bound=Config)


def load_shipped(cls: type[Example], name: str) -> Example:
    """An example that comes with the package."""
    return parse_example(cls, resources.files("headwise.explain").joinpath(name).read_text("utf-8"), name)


def load_file(cls: type[Example], path: Path) -> Example:
    """An example from a user's file."""
    try:
        return parse_example(cls, read_bytes(path).decode(), str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text at byte {error.start}; save it as UTF-8") from None


def parse_example(cls: type[Example], text: str, where: str) -> Example:
    """Parse TOML text as an example; all error messages start with `where`."""
    try:
        data = parse_toml(text)
    except ValueError as error:
        raise UserError(f"{where}: not valid TOML: {error}") from None
    return validate(cls, data, where)


def check_matrix(key: str, rows: Numbers) -> NDArray[np.float64]:
    """Rows as an array; they must be rectangular and not too large."""
    if not rows or not rows[0]:
        raise Problems([((key,), "is empty; give at least one row of numbers")])
    for count, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            sentence = f"row {count} has {len(row)} numbers but row 1 has {len(rows[0])}; make them equally long"
            raise Problems([((key,), sentence)])
    if max(len(rows), len(rows[0])) > MAX_SIZE:
        shape = f"{len(rows)}×{len(rows[0])}"
        raise Problems([((key,), f"is {shape}; an explanation takes at most {MAX_SIZE} rows and columns")])
    return np.array(rows, dtype=np.float64)


def check_size(key: str, what: str, size: int, expected: int, reason: str) -> None:
    """Check one size: `key` must have `expected` rows (or columns, or entries)."""
    if size != expected:
        raise Problems([((key,), f"has {size} {what} but needs {expected}, {reason}")])
