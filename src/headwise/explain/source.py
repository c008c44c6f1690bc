"""Small TOML files of matrices: read, validated and checked for shape, with errors that name file and key."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headwise.config.base import Config, Problems, validate
from headwise.errors import UserError
from headwise.utils.files import parse_toml

Numbers = tuple[tuple[float, ...], ...]
LARGEST = 12  # rows or columns; beyond that nobody reads the numbers

Example = TypeVar("Example", bound=Config)


def shipped(cls: type[Example], name: str) -> Example:
    """An example that comes with the package."""
    return parse(cls, resources.files("headwise.explain").joinpath(name).read_text("utf-8"), name)


def read(cls: type[Example], path: Path) -> Example:
    """An example of the user's."""
    try:
        return parse(cls, path.read_text("utf-8"), str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text at byte {error.start}; save it as UTF-8") from None


def parse(cls: type[Example], text: str, where: str) -> Example:
    """TOML text as an example, all errors starting with `where`."""
    try:
        data = parse_toml(text)
    except ValueError as error:
        raise UserError(f"{where}: not valid TOML: {error}") from None
    return validate(cls, data, where)


def matrix(key: str, rows: Numbers) -> NDArray[np.float64]:
    """Rows as an array, once they are rectangular and small enough to be read."""
    if not rows or not rows[0]:
        raise Problems([((key,), "is empty; give at least one row of numbers")])
    for count, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            sentence = f"row {count} has {len(row)} numbers but row 1 has {len(rows[0])}; make them equally long"
            raise Problems([((key,), sentence)])
    if max(len(rows), len(rows[0])) > LARGEST:
        shape = f"{len(rows)}×{len(rows[0])}"
        raise Problems([((key,), f"is {shape}; an explanation takes at most {LARGEST} rows and columns")])
    return np.array(rows, dtype=np.float64)


def expect(key: str, what: str, found: int, wanted: int, because: str) -> None:
    """One shape rule: `key` must have `wanted` rows (or columns, or entries)."""
    if found != wanted:
        raise Problems([((key,), f"has {found} {what} but needs {wanted}, {because}")])
