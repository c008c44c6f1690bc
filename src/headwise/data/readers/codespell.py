"""codespell's dictionary: `misspelling->correction`, or `misspelling->one, another, comment`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwise.data.files import read_lines
from headwise.data.readers.base import ReadOptions, Record
from headwise.errors import UserError


def read_codespell(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read a record for each correction; what follows the last comma is a comment, which may be empty."""
    for number, line in read_lines(path):
        misspelling, arrow, rest = line.partition("->")
        if not arrow and line.strip():
            raise UserError(f"{path}, line {number}: no '->' between a misspelling and its correction")
        for correction in rest.rpartition(",")[0].split(",") if "," in rest else [rest]:
            yield Record(number, misspelling, correction)
