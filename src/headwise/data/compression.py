"""Compressed input files, recognised by their first bytes: gzip, bzip2, xz and Zstandard."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from headwise.errors import UserError
from headwise.utils.extras import needed_for

MAGIC = {  # the first bytes -> the suffix
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\xfd7zXZ\x00": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
}
NAMES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "Zstandard"}  # by suffix
BROKEN = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError)


def strip_suffix(name: str) -> str:
    """A file's name without the suffix of a compression.

    >>> strip_suffix("pairs.tsv.gz")
    'pairs.tsv'
    """
    stem, dot, suffix = name.rpartition(".")
    return stem if dot + suffix in NAMES else name


@contextmanager
def decompress(file: io.BufferedReader, path: Path) -> Iterator[IO[bytes]]:
    """The content of an open file, decompressed if it begins as a compressed file does.

    A file whose suffix promises a compression and that is not compressed is refused.
    """
    start = file.peek(8)
    suffix = next((suffix for magic, suffix in MAGIC.items() if start.startswith(magic)), "")
    promised = path.suffix if path.suffix in NAMES else ""
    broken = f"{path}: is not a complete {NAMES.get(suffix or promised)} file; copy it again"
    if promised and start and not suffix:
        raise UserError(f"{broken}, or drop the {promised}")
    try:
        with _open_compressed(file, suffix, path) if suffix else file as content:
            yield content
    except BROKEN:
        raise UserError(f"{broken}, or drop the {suffix}") from None
    except OSError as error:
        if suffix and error.errno is None:  # bzip2 and Zstandard: invalid data
            raise UserError(f"{broken}, or drop the {suffix}") from None
        raise


def _open_compressed(file: io.BufferedReader, suffix: str, path: Path) -> IO[bytes]:
    if suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    if suffix == ".bz2":
        return cast(IO[bytes], bz2.BZ2File(file))
    if suffix == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(file))
    with needed_for(f"{path}: is compressed by Zstandard, which pyarrow reads"):
        import pyarrow
    stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd")
    return cast(IO[bytes], io.BufferedReader(cast(io.RawIOBase, stream), 2**18))
