"""Input files: found by path, folder or pattern, opened plain or gzip, read as UTF-8 lines."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import IO, cast

from headwise.errors import UserError

TEXT_SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")  # of the files that a folder stands for


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, plain or .gz, for reading bytes; an OS or gzip error becomes a `UserError`."""
    try:
        with cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path in [data]") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path}: is not a complete gzip file; copy it again, or drop the .gz") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end) of a UTF-8 file, plain or .gz."""
    with open_file(path) as file:
        for number, line in decode_lines(file, str(path)):
            yield number, line.rstrip("\r\n")


def decode_lines(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Decode lines of UTF-8 and number them from 1; an error names the line."""
    for number, line in enumerate(lines, 1):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {number}: not UTF-8 (byte {error.start + 1}); convert the file to UTF-8"
            ) from None


def find_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Expand folders to the text files below them, and glob patterns to the files that match."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += _list_texts(path)
        elif path.exists() or not re.search(r"[*?[]", str(path)):
            files.append(path)
        else:
            matches = sorted(match for match in map(Path, glob(str(path), recursive=True)) if match.is_file())
            if not matches:
                raise UserError(f"{path}: no file matches this pattern; check it in [data]")
            files += matches
    return tuple(files)


def _list_texts(folder: Path) -> list[Path]:
    paths = sorted(path for path in folder.rglob("*") if path.name.endswith(TEXT_SUFFIXES) and path.is_file())
    if not paths:
        raise UserError(f"{folder}: has no texts; add files that end in {', '.join(TEXT_SUFFIXES)}")
    return paths
