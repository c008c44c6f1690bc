"""Input files: found by path, folder or pattern, opened plain or compressed, read as UTF-8 lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from glob import glob
from pathlib import Path
from typing import IO

from headwise.data.compression import decompress, strip_suffix
from headwise.data.encodings import convert_to_utf8, suggest_iconv
from headwise.errors import UserError

TEXT_SUFFIXES = (".txt", ".jsonl")  # of the files that a folder of texts stands for, plain or compressed
MAX_LINE = 2**26  # bytes: a small archive can unpack to a line that fills the memory


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, plain or compressed, for reading bytes; an OS or decompression error becomes a `UserError`."""
    try:
        with open(path, "rb") as file, decompress(file, path) as content:
            yield content
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path in [data]") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


@contextmanager
def open_text(path: Path) -> Iterator[IO[bytes]]:
    """Open a text file, plain or compressed, for reading its bytes as UTF-8 (see `convert_to_utf8`)."""
    with open_file(path) as content:
        try:
            yield convert_to_utf8(content, path)
        except UnicodeDecodeError as error:
            reason = f"is not valid {error.encoding.upper()} as its byte-order mark says"
            raise UserError(f"{path}: {reason}; copy it again, or convert it to UTF-8") from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end) of a text file, plain or compressed."""
    with open_text(path) as file:
        for number, line in decode_lines(file, str(path), path):
            yield number, line.rstrip("\r\n")


def decode_lines(file: IO[bytes], name: str, path: Path | None = None) -> Iterator[tuple[int, str]]:
    """Decode lines of UTF-8 and number them from 1; an error names the line, and how to convert the file at `path`."""
    for number, line in enumerate(iter(partial(file.readline, MAX_LINE), b""), 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            if len(line) >= MAX_LINE:
                text = ""  # refused below: a character may be cut in two
            else:
                how = suggest_iconv(path, "WINDOWS-1252") if path else "convert the file to UTF-8"
                raise UserError(f"{name}, line {number}: not UTF-8 (byte {error.start + 1}); {how}") from None
        if len(line) >= MAX_LINE:
            raise UserError(f"{name}, line {number}: longer than {MAX_LINE // 2**20} MB; split the line")
        yield number, text


def is_pattern(path: Path) -> bool:
    """Whether a path is a glob pattern such as `data/*.csv`, and not a file with such a name."""
    return bool(re.search(r"[*?[]", str(path))) and not path.exists()


def find_files(paths: Iterable[Path], suffixes: tuple[str, ...] = TEXT_SUFFIXES) -> tuple[Path, ...]:
    """Expand folders to the files below them with these suffixes, and glob patterns to the files that match; both in
    alphabetical order."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += _list_files(path, suffixes)
        elif not is_pattern(path):
            files.append(path)
        else:
            matches = sorted(match for match in map(Path, glob(str(path), recursive=True)) if match.is_file())
            if not matches:
                raise UserError(f"{path}: no file matches this pattern; check it in [data]")
            files += matches
    return tuple(files)


def _list_files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    paths = sorted(path for path in folder.rglob("*") if strip_suffix(path.name).endswith(suffixes) and path.is_file())
    if not paths:
        raise UserError(f"{folder}: has no texts; add files that end in {', '.join(suffixes)}, plain or compressed")
    return paths
