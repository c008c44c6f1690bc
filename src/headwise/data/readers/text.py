"""Plain text of any size, split into lines, documents or whole files; a long text is yielded in pieces.

In a `.jsonl` file each line is a text, in any format.
"""

from __future__ import annotations

import re
from codecs import utf_8_decode
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from headwise.data.files import open_text, read_lines
from headwise.data.readers.jsonl import is_jsonl, read_jsonl_texts
from headwise.data.texts import Continuation, find_break
from headwise.errors import UserError

PIECE_SIZE = 2**20  # characters, about; also the bytes that are read at a time

SPLITTERS: dict[str, Callable[[str], list[str]]] = {
    "text": lambda text: [text],
    "documents": re.compile(r"\n\s*\n").split,
    "lines": lambda text: text.split("\n"),
}


def read_texts(files: tuple[Path, ...], format: str) -> Iterator[str]:
    """Yield the texts of all files, long ones in pieces. Blank texts are skipped; if there are no others, raise."""
    empty = True
    for path in files:
        for piece in read_jsonl_texts(path) if is_jsonl(path) else _read_pieces(path, format):
            empty = False
            yield piece
    if empty:
        others = f" and {len(files) - 1} other files" if len(files) > 1 else ""
        raise UserError(f"{files[0]}{others}: has no text; check that it is the right file")


def _read_pieces(path: Path, format: str) -> Iterator[str]:
    """Split a file into texts, and texts longer than `PIECE_SIZE` into pieces."""
    split, strip = SPLITTERS[format], format != "text"
    kind: type[str] = str
    text = ""
    for chunk in _read_chunks(path):
        *complete, text = split(text + chunk)
        for piece in complete:
            yield from _clean(piece, kind, strip)
            kind = str
        if len(text) >= PIECE_SIZE:
            end = find_break(text)
            for piece in _clean(text[:end], kind, strip):
                yield piece
                kind = Continuation
            text = text[end:]
    yield from _clean(text, kind, strip)


def _clean(text: str, kind: type[str], strip: bool) -> list[str]:
    """The piece, or nothing if it is blank. Only the start and the end of a whole text are stripped."""
    if strip:
        text = text.rstrip() if kind is Continuation else text.strip()
    blank = not text if kind is Continuation else text.isspace() or not text
    return [] if blank else [kind(text)]


def _read_chunks(path: Path) -> Iterator[str]:
    """Yield a file's text as it is read, without a byte-order mark and with \\n as line ends."""
    rest, more, mark = b"", True, "\ufeff"
    with open_text(path) as file:
        while more:
            more = bool(block := file.read(PIECE_SIZE))
            try:
                text, used = utf_8_decode(rest + block, "strict", not more)
            except UnicodeDecodeError:
                deque(read_lines(path), maxlen=0)  # raises an error that names the line
                raise
            if more and text.endswith("\r"):  # its \n may come with the next block
                text, used = text[:-1], used - 1
            rest = (rest + block)[used:]
            yield text.removeprefix(mark).replace("\r\n", "\n")
            mark = ""
