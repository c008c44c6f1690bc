"""Files of UTF-8, plain or .gz, and one sentence for whatever is wrong with them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from headwise.errors import UserError


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end) of a UTF-8 file, plain or .gz."""
    with reading(path) as file:
        for number, line in decoded(file, str(path)):
            yield number, line.rstrip("\r\n")


def decoded(file: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(file, 1):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {number}: not UTF-8 (byte {error.start + 1}); convert the file to UTF-8"
            ) from None


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """The file, opened; what the system and the libraries say against it becomes one sentence for the user."""
    try:
        with cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path in [data]") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path}: is not a whole gzip file; copy it again, or drop the .gz") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
