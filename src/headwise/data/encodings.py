"""Text encodings of input files: UTF-8 with or without a byte-order mark, UTF-16 and UTF-32 with one."""

from __future__ import annotations

import codecs
import io
import shlex
from pathlib import Path
from typing import IO, cast

from headwise.errors import UserError

CHUNK = 2**18  # bytes decoded at a time
MARKS = {  # byte-order marks; that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def convert_to_utf8(content: IO[bytes], path: Path) -> IO[bytes]:
    """The bytes of a text as UTF-8. UTF-16 and UTF-32 are recognised by their byte-order marks; without one, UTF-16 is
    refused. A byte-order mark of UTF-8 is kept."""
    buffered = content if isinstance(content, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, content))
    start = buffered.peek(64)[:64]
    encoding = find_encoding(start)
    if encoding:
        return io.BufferedReader(_Recoder(buffered, encoding), CHUNK)
    for order, (zeros, letters) in {"LE": (1, 0), "BE": (0, 1)}.items():
        if len(start) > 3 and not any(start[zeros::2]) and all(start[letters::2]):
            raise UserError(
                f"{path}: looks like UTF-16 without a byte-order mark; {suggest_iconv(path, f'UTF-16{order}')}"
            )
    return buffered


def find_encoding(start: bytes) -> str:
    """The encoding that a byte-order mark of UTF-16 or UTF-32 names, or an empty string.

    >>> find_encoding("a".encode("utf-16")), find_encoding(b"a")
    ('utf-16', '')
    """
    return next((encoding for mark, encoding in MARKS.items() if start.startswith(mark)), "")


def suggest_iconv(path: Path, encoding: str) -> str:
    """The end of an error sentence: a command that converts a file to UTF-8.

    >>> suggest_iconv(Path("my pairs.tsv"), "UTF-16LE")
    "convert it: iconv -f UTF-16LE -t UTF-8 'my pairs.tsv' > 'my pairs.utf8.tsv'"
    """
    converted = path.with_name(f"{path.stem}.utf8{path.suffix}")
    return f"convert it: iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > {shlex.quote(str(converted))}"


class _Recoder(io.RawIOBase):
    """A stream in another encoding, as UTF-8."""

    def __init__(self, source: IO[bytes], encoding: str):
        self.source, self.decoder, self.rest = source, codecs.getincrementaldecoder(encoding)(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self.rest:
            block = self.source.read(CHUNK)
            self.rest = self.decoder.decode(block, final=not block).encode()
            if not block:
                break
        size = min(len(view), len(self.rest))
        view[:size], self.rest = self.rest[:size], self.rest[size:]
        return size
