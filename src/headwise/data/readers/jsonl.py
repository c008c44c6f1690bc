"""JSON lines: an object in each line; nested keys are named with dots, such as "answers.text"."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headwise.data.compression import strip_suffix
from headwise.data.files import read_lines
from headwise.data.readers.base import ReadOptions, Record
from headwise.data.readers.columns import Cells, build_lookup, build_records, list_columns, list_keys
from headwise.errors import UserError, nearest


def read_jsonl(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the keys that `options.columns` names; blank lines are skipped."""
    return build_records(path, look_up_cells(path, read_objects(path), options), options)


def look_up_cells(
    path: Path, rows: Iterable[tuple[int, dict[str, Any]]], options: ReadOptions, unit: str = "line"
) -> Iterator[tuple[int, Cells]]:
    """The values of the keys that are read, of each object; `unit` is what numbers count, for errors."""
    lookups = None
    for number, row in rows:
        if lookups is None:
            columns = list_columns(path, options, list_keys(row))
            if not all(isinstance(column, str) for column in columns):
                raise UserError(f"data.columns: the keys of {path} have names and no numbers; name them")
            lookups = [build_lookup(str(column)) for column in columns]
        try:
            cells = tuple([look_up(row) for look_up in lookups])
        except KeyError:
            missing = next(column for column in columns if not _has(row, str(column)))
            keys = list_keys(row)
            known = nearest(str(missing), keys) if keys else "the object is empty"
            raise UserError(f"{path}, {unit} {number}: there is no key '{missing}'; {known}") from None
        yield number, cells


def _has(row: dict[str, Any], name: str) -> bool:
    try:
        build_lookup(name)(row)
    except KeyError:
        return False
    return True


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object of each line, with the line's number; blank lines are skipped."""
    decode = json.JSONDecoder().decode
    for number, line in read_lines(path):
        try:
            row = decode(line)
        except (ValueError, RecursionError) as error:
            if not line.strip():
                continue
            raise UserError(
                f"{path}, line {number}: not JSON ({describe_error(error)}); write one object per line"
            ) from None
        if type(row) is not dict:
            raise UserError(f'{path}, line {number}: not an object; write one per line, such as {{"text": "..."}}')
        if "\\ud" in line or "\\uD" in line:
            check_surrogates(row, f"{path}, line {number}")
        yield number, row


def check_surrogates(value: object, place: str) -> None:
    """Refuse texts with half of a surrogate pair, which JSON can escape and UTF-8 cannot encode."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise UserError(f"{place}: {half} is half of a character; write both halves, or the character") from None


def describe_error(error: Exception) -> str:
    """The reason why a text is no JSON, for an error message."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower().removesuffix(' at')} at character {error.pos + 1}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def is_jsonl(path: Path) -> bool:
    return strip_suffix(path.name).endswith(".jsonl")


def read_jsonl_texts(path: Path) -> Iterator[str]:
    """Yield the text under the key `text` of each line; blank texts and blank lines are skipped."""
    for number, row in read_objects(path):
        text = row.get("text")
        if not isinstance(text, str):
            raise UserError(f'{path}, line {number}: no text under the key "text"; write {{"text": "..."}}')
        if text.strip():
            yield text
