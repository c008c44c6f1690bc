"""A zip archive with a file of texts for each label, such as `reviews.pos` and `reviews.neg`."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import cast

from headwise.data.files import decode_lines, open_file
from headwise.data.readers.base import ReadOptions, Record
from headwise.errors import UserError

_UNLABELLED = {"", ".txt", ".md"}  # suffixes of files that describe the archive


def read_labelled_zip(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the lines of each file; the label is the file's suffix."""
    labels = {}
    with open_file(path) as raw:
        try:
            with zipfile.ZipFile(raw) as archive:
                suffixes = {name: PurePosixPath(name).suffix for name in sorted(archive.namelist())}
                labels = {name: suffix[1:] for name, suffix in suffixes.items() if suffix not in _UNLABELLED}
                for name, label in labels.items():
                    with archive.open(name) as file:
                        lines = decode_lines(io.BufferedReader(cast(io.RawIOBase, file)), f"{path}, {name}")
                        yield from (Record(number, line, label) for number, line in lines if line.strip())
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):  # the last: a password
            raise UserError(f"{path}: is not a complete zip archive without a password; copy it again") from None
    if not labels:
        raise UserError(f"{path}: has no files named by labels; name them such as reviews.pos and reviews.neg")
