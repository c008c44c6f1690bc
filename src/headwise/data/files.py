"""Input files: found by path, folder or pattern, opened plain or compressed, read as UTF-8 lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from glob import glob
from itertools import chain
from pathlib import Path
from typing import IO

from headwise.data.compression import decompress, strip_suffix
from headwise.data.encodings import convert_to_utf8, suggest_iconv
from headwise.errors import UserError
from headwise.utils.files import open_regular

TEXT_SUFFIXES = (".txt", ".jsonl")  # of the files that a folder of texts stands for, plain or compressed
BLOCK = 2**18  # bytes read at a time
MAX_LINE = 2**26  # bytes: a small archive can unpack to a line that fills the memory


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, plain or compressed, for reading bytes; an OS or decompression error becomes a `UserError`."""
    try:
        with os.fdopen(open_regular(path), "rb") as file, decompress(file, path) as content:
            yield content
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check its path") from None
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
    return enumerate(chain.from_iterable(read_line_blocks(path)), 1)


def read_line_blocks(path: Path) -> Iterator[list[str]]:
    """Yield lists of lines, without their ends, of a text file, plain or compressed: faster than line by line."""
    number, rest = 1, b""
    with open_text(path) as file:
        while block := file.read(BLOCK):
            head, end, tail = block.rpartition(b"\n")
            rest += head if end else block
            if len(rest) >= MAX_LINE:
                _check_length(rest, str(path), number)
            if end:
                lines = _decode_block(rest, str(path), number, path)
                number, rest = number + len(lines), tail
                yield lines
        if rest:
            _check_length(rest, str(path), number)
            yield _decode_block(rest, str(path), number, path)


def decode_lines(file: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Decode lines of UTF-8 and number them from 1; an error names the line."""
    for number, line in enumerate(iter(partial(file.readline, MAX_LINE), b""), 1):
        _check_length(line, name, number)
        yield number, _decode_block(line.removesuffix(b"\n"), name, number)[0]


def _check_length(text: bytes, name: str, number: int) -> None:
    if len(text) >= MAX_LINE and b"\n" not in text[: MAX_LINE - 1]:
        raise UserError(f"{name}, line {number}: longer than {MAX_LINE // 2**20} MB; split the line")


def _decode_block(text: bytes, name: str, number: int, path: Path | None = None) -> list[str]:
    """The lines of a text that starts at line `number`; an error says how to convert the file at `path`."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        number += text.count(b"\n", 0, error.start)
        byte = error.start - text.rfind(b"\n", 0, error.start)
        how = suggest_iconv(path, "WINDOWS-1252") if path else "convert the file to UTF-8"
        raise UserError(f"{name}, line {number}: not UTF-8 (byte {byte}); {how}") from None
    lines = (decoded.removeprefix("\ufeff") if number == 1 else decoded).split("\n")
    return [line.rstrip("\r") for line in lines] if "\r" in decoded else lines


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
