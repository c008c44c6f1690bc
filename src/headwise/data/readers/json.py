"""JSON files that are one value: a list of objects, or an object with such a list under a key, `{"data": [...]}`.

The list is decoded object by object, so that a file may be larger than memory; one object may not (`MAX_OBJECT`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from headwise.data.files import open_text
from headwise.data.readers.base import ReadOptions, Record
from headwise.data.readers.columns import build_records
from headwise.data.readers.jsonl import check_surrogates, describe_error, look_up_cells
from headwise.errors import UserError

MAX_OBJECT = 2**26  # characters of one object of the list, or of a value beside it
BLOCK = 2**18  # bytes that are read at a time, at least
START = re.compile(r"\s*(\[\s*[\[{\"\]]|\{\s*[\"}])")  # of a list or an object; prose may begin with a bracket
_SPACE = re.compile(r"[ \t\n\r]*")


def read_json(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the keys that `options.columns` names of each object."""
    return build_records(path, look_up_cells(path, read_objects(path), options, "object"), options, "object")


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of the list, numbered from 1."""
    number, list_key = 0, None
    for key, value, listed in read_members(path):
        if not listed:
            continue
        if not isinstance(value, dict):
            if key in ("", list_key):
                raise UserError(f"{path}, item {number + 1}: is no object; write a list of objects alone")
            continue
        if list_key not in (None, key):
            raise UserError(f"{path}: has several lists ({list_key}, {key}); write each into a file of its own")
        number, list_key = number + 1, key
        yield number, value


class Member(NamedTuple):
    """An item of a list (`listed`) or another value, and its key; "" if the file is a list."""

    key: str
    value: Any
    listed: bool


def read_members(path: Path) -> Iterator[Member]:
    """The values of an object's keys, and each item of the lists among them; or the items of a list."""
    with open_text(path) as file:
        scanner = _Scanner(path, file)
        opening = scanner.take("[{")
        if opening == "[":
            yield from (Member("", item, True) for item in scanner.read_items())
        else:
            while scanner.peek() != "}":
                key = scanner.decode()
                scanner.take(":")
                if scanner.peek() == "[":
                    scanner.take("[")
                    yield from (Member(str(key), item, True) for item in scanner.read_items())
                else:
                    yield Member(str(key), scanner.decode(), False)
                if scanner.peek() != "}":
                    scanner.take(",")
            scanner.take("}")
        if scanner.peek():
            raise scanner.error("there is more after the end of the value")


class _Scanner:
    """A decoder of JSON that reads a file block by block."""

    def __init__(self, path: Path, file: IO[bytes]):
        self.path, self.file = path, file
        self.text, self.at, self.offset = "", 0, 0  # `offset`: characters of the file before `text`
        self.rest, self.ended = b"", False
        self.decoder = json.JSONDecoder()

    def read_items(self) -> Iterator[Any]:
        """The items of a list after its bracket, one at a time."""
        while self.peek() != "]":
            yield self.decode()
            if self.peek() != "]":
                self.take(",")
        self.take("]")

    def peek(self) -> str:
        """The next character that is no space; empty at the end of the file."""
        while True:
            match = _SPACE.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if self.ended:
                return ""
            self.read_more(BLOCK)

    def take(self, expected: str) -> str:
        """Take one of the expected characters."""
        character = self.peek()
        if not character or character not in expected:
            raise self.error(f"expecting {' or '.join(expected)}" if character else "it ends too early")
        self.at += 1
        return character

    def decode(self) -> Any:
        """Decode a value, reading on until it is complete."""
        self.peek()
        size = BLOCK
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                if self.ended or isinstance(error, RecursionError):
                    raise self.error(describe_error(error)) from None
            else:
                if end < len(self.text) or self.ended:  # or else a number may go on
                    if "\\ud" in self.text or "\\uD" in self.text:
                        check_surrogates(value, str(self.path))
                    self.at = end
                    return value
            if len(self.text) - self.at > MAX_OBJECT:
                raise UserError(
                    f"{self.path}: an object of the JSON is not complete after {MAX_OBJECT // 2**20} MB; write smaller "
                    "ones, one a line (.jsonl)"
                )
            self.read_more(size)
            size *= 2  # an object is scanned again from its start: in all at most twice

    def read_more(self, size: int) -> None:
        """Forget what was decoded and read on."""
        block = self.file.read(size)
        self.ended = not block
        raw = self.rest + block
        try:
            end = len(raw) if self.ended else _find_boundary(raw)
            text = raw[:end].decode()
        except UnicodeDecodeError as error:
            place = f"byte {error.start + 1} after character {self.offset + len(self.text):,}"
            raise UserError(f"{self.path}: not UTF-8 ({place}); convert the file to UTF-8") from None
        if not self.offset and not self.text:
            text = text.removeprefix("\ufeff")
        self.rest = raw[end:]
        self.offset += self.at
        self.text, self.at = self.text[self.at :] + text, 0

    def error(self, reason: str) -> UserError:
        place = f"character {self.offset + self.at + 1:,}"
        return UserError(f"{self.path}: is not valid JSON ({reason}, {place}); correct it, or copy the file again")


def _find_boundary(raw: bytes) -> int:
    """The number of bytes before a character of UTF-8 that is cut off at the end."""
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:  # the first byte of a character of 2, 3 or 4
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(raw) - back if back < length else len(raw)
    return len(raw)
