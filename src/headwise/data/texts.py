"""Texts without a source, from files of any size: a long one comes in pieces, the others whole.

In a `.jsonl` file each line is an object with a text under the key `text`; other files are cut as the format says.
"""

from __future__ import annotations

import json
import re
from codecs import utf_8_decode
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from glob import glob
from pathlib import Path

from headwise.data.lines import read_lines, reading
from headwise.errors import UserError

Pair = tuple[str, str]

PIECE = 2**20  # characters, about
ENDINGS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")  # of the files that are taken from a folder

CUTS: dict[str, Callable[[str], list[str]]] = {
    "text": lambda text: [text],
    "documents": re.compile(r"\n\s*\n").split,
    "lines": lambda text: text.split("\n"),
}
_SEAM = re.compile(r"(?<=\S)\s(?=\S)")  # no tokeniser joins what stands before such a space to it
_NEAR = 1024  # characters from the end in which a seam is looked for


class Continuation(str):
    """A piece that goes on where the one before it ended.

    Tokenisers may treat the beginning of a text in a way of their own, such as putting a space before it. So a piece is
    encoded behind a `lead`, whose tokens are dropped.
    """

    @property
    def lead(self) -> str:
        return "x" if self[:1].isspace() else "x\n"


def read_texts(files: tuple[Path, ...], format: str) -> Iterator[str]:
    """The texts of all files, one after the other. Blank ones are skipped; that there are no others is an error."""
    found = False
    for path in files:
        for piece in _records(path) if is_jsonl(path) else _cut(path, format):
            found = True
            yield piece
    if not found:
        others = f" and {len(files) - 1} other files" if len(files) > 1 else ""
        raise UserError(f"{files[0]}{others}: no text in there; check that it is the right file")


def find(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The files that are meant: a folder stands for the texts below it, a pattern with * for what it matches."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += _below(path)
        elif path.exists() or not re.search(r"[*?[]", str(path)):
            found.append(path)
        else:
            matches = sorted(match for match in map(Path, glob(str(path), recursive=True)) if match.is_file())
            if not matches:
                raise UserError(f"{path}: no file matches this pattern; check it in [data]")
            found += matches
    return tuple(found)


def is_jsonl(path: Path) -> bool:
    return path.name.endswith((".jsonl", ".jsonl.gz"))


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """A text that is at hand, cut into pieces of about this size."""
    kind, start = type(text), 0
    while len(text) - start > 2 * size:
        end = start + _seam(text[start : start + size])
        yield kind(text[start:end])
        kind, start = Continuation, end
    yield kind(text[start:])


def whole(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """The pairs with their targets in one piece.

    >>> list(whole([("", "a"), ("", "b"), ("", Continuation(" c"))]))
    [('', 'a'), ('', 'b c')]
    """
    source, parts = "", list[str]()
    for first, target in pairs:
        if not isinstance(target, Continuation):
            if parts:
                yield source, "".join(parts)
            source, parts = first, []
        parts.append(target)
    if parts:
        yield source, "".join(parts)


def _below(folder: Path) -> list[Path]:
    paths = sorted(path for path in folder.rglob("*") if path.name.endswith(ENDINGS) and path.is_file())
    if not paths:
        raise UserError(f"{folder}: no texts in this folder; put files in it that end in {', '.join(ENDINGS)}")
    return paths


def _cut(path: Path, format: str) -> Iterator[str]:
    """The texts of a file; what is longer than a piece comes in several."""
    cut, strip = CUTS[format], format != "text"
    kind: type[str] = str
    text = ""
    for chunk in _chunks(path):
        *done, text = cut(text + chunk)
        for piece in done:
            yield from _cleaned(piece, kind, strip)
            kind = str
        if len(text) >= PIECE:
            at = _seam(text)
            for piece in _cleaned(text[:at], kind, strip):
                yield piece
                kind = Continuation
            text = text[at:]
    yield from _cleaned(text, kind, strip)


def _cleaned(text: str, kind: type[str], strip: bool) -> list[str]:
    """The piece, unless there is nothing in it; a text is stripped at its very ends alone."""
    if strip:
        text = text.rstrip() if kind is Continuation else text.strip()
    blank = not text if kind is Continuation else text.isspace() or not text
    return [] if blank else [kind(text)]


def _seam(text: str) -> int:
    """Where to cut: before the last space between words. Where none is near, as in scripts without them, at the end."""
    near = max(len(text) - _NEAR, 0)
    return max((match.start() for match in _SEAM.finditer(text, near)), default=len(text))


def _chunks(path: Path) -> Iterator[str]:
    """A file's text as it is read, line ends as \\n."""
    left, more, mark = b"", True, "\ufeff"
    with reading(path) as file:
        while more:
            more = bool(block := file.read(PIECE))
            try:
                text, used = utf_8_decode(left + block, "strict", not more)
            except UnicodeDecodeError:
                deque(read_lines(path), maxlen=0)  # it names the line
                raise
            if more and text.endswith("\r"):  # its \n may come with the next block
                text, used = text[:-1], used - 1
            left = (left + block)[used:]
            yield text.removeprefix(mark).replace("\r\n", "\n")
            mark = ""


def _records(path: Path) -> Iterator[str]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise UserError(f'{path}, line {number}: no text under the key "text"; write {{"text": "..."}}')
        if text.strip():
            yield text
