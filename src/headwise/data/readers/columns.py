"""Columns of tables: from rows of cells to records, for every format with named columns.

The last of `data.columns` is the target, those before it are texts; one column alone is a text without a source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

from headwise.data.readers.base import ReadOptions, Record
from headwise.errors import UserError, nearest
from headwise.text.paired import SEPARATOR

Cells = tuple[Any, ...]  # values of `data.columns`, then of `data.group` if there is one


def list_columns(path: Path, options: ReadOptions, names: Iterable[str] = ()) -> list[str | int]:
    """`data.columns`, then `data.group`; raise if none is named. `names` are those of the file, for the error."""
    if not options.columns:
        known = ", ".join(names) or "none"
        raise UserError(f"{path}: which columns are read? list them in data.columns; the file has: {known}")
    return [*options.columns, *([options.group] if options.group != "" else [])]


def find_column(path: Path, names: Sequence[str], name: str, place: str = "") -> int:
    """The index of a column by its name."""
    if name not in names:
        raise UserError(f"{path}{place}: there is no column '{name}'; {nearest(name, names)}")
    if names.count(name) > 1:
        raise UserError(
            f"{path}{place}: {names.count(name)} columns are called '{name}'; rename them, or number columns"
        )
    return names.index(name)


def select_cells(
    path: Path, rows: Iterator[tuple[int, list[str]]], options: ReadOptions
) -> Iterator[tuple[int, Cells]]:
    """The cells of the columns that are read, of each row of text cells; the first row may be a header."""
    header = next(rows, (1, []))[1] if options.has_header else []
    header = [name.strip() for name in header]
    columns = list_columns(path, options, header)
    if not options.has_header and any(isinstance(column, str) for column in columns):
        raise UserError("data.columns: names need a header row; set data.header = true, or number the columns from 1")
    indices = [
        find_column(path, header, column, ", line 1") if isinstance(column, str) else column - 1 for column in columns
    ]
    last = max(indices)
    get = itemgetter(*indices) if len(indices) > 1 else lambda cells: (cells[last],)
    for number, cells in rows:
        try:
            yield number, get(cells)
        except IndexError:
            if not any(map(str.strip, cells)):
                continue
            counts = f"has {len(cells)} columns, and column {last + 1} is read"
            raise UserError(f"{path}, line {number}: {counts}; correct the line or data.columns") from None


def build_records(
    path: Path, rows: Iterable[tuple[int, Cells]], options: ReadOptions, unit: str = "line"
) -> Iterator[Record]:
    """Turn cells into records; `unit` is what `number` counts, for errors.

    A list of words is joined by spaces. A list in the target column is one target for each word if the source is a list
    too, and alternative targets otherwise, a record for each.
    """
    names = [str(column) for column in options.columns]
    grouped = options.group != ""
    texts = len(names) - 1
    for number, cells in rows:
        # The common case first: as fast as the loop can be.
        if not grouped and texts == 1 and type(cells[0]) is str and type(cells[1]) is str:
            yield Record(number, cells[0], cells[1])
            continue
        values = [_write_cell(path, cell, name, f"{unit} {number}") for cell, name in zip(cells, names, strict=False)]
        group = str(cells[-1]) if grouped else ""
        if not texts:
            yield Record(number, "", _join(values[0]), group)
            continue
        *sources, target = values
        tagged = isinstance(target, list) and any(isinstance(source, list) for source in sources)
        parts = [_join(source) for source in sources]
        if texts > 1:
            parts = [part.replace(SEPARATOR, " ").strip() for part in parts]
            written = target if isinstance(target, str) else "list"
            if not all(parts) and options.skip_incomplete:
                continue
            if not all(parts) and (any(parts) or written.strip()):
                raise UserError(f"{path}, {unit} {number}: a text is empty; fill it in or remove the {unit}")
        source = SEPARATOR.join(parts) if any(parts) else ""
        for text in [_join(target)] if tagged or isinstance(target, str) else target:
            yield Record(number, source, text, group)


def _write_cell(path: Path, cell: Any, name: str, place: str) -> str | list[str]:
    """A cell as text, or as a list of texts."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, list | tuple):
        return [_write_scalar(path, item, name, place) for item in cell]
    return _write_scalar(path, cell, name, place)


def _write_scalar(path: Path, value: Any, name: str, place: str) -> str:
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        keys = ", ".join(f"{name}.{key}" for key in value)
        raise UserError(f"{path}, {place}: column '{name}' has keys of its own; name one of them: {keys}")
    kind = "a list of lists" if isinstance(value, list) else f"of type {type(value).__name__}"
    raise UserError(f"{path}, {place}: column '{name}' is {kind}; a text, a number or a list of them can be read")


def _join(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join("_".join(word.split()) or "_" for word in value)


def build_lookup(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """A function that looks up a key of nested objects, such as "answers.text"; KeyError if there is none.

    A key with a dot in it has precedence. Of a list of objects, the values under the key are listed.

    >>> build_lookup("answers.text")({"answers": [{"text": "a"}, {"text": "b"}]})
    ['a', 'b']
    """
    parts = name.split(".")

    def look_up(row: Mapping[str, Any]) -> Any:
        return row[name] if name in row else follow_keys(row, parts)

    return itemgetter(name) if len(parts) == 1 else look_up


def follow_keys(value: Any, parts: Sequence[str]) -> Any:
    """The value under keys of nested objects; a list of values where there is a list of objects."""
    for index, part in enumerate(parts):
        if isinstance(value, list):
            return [follow_keys(item, parts[index:]) for item in value]
        if not isinstance(value, Mapping):
            raise KeyError(part)
        value = value[part]
    return value


def list_keys(row: Mapping[str, Any], depth: int = 3) -> list[str]:
    """The keys of nested objects, as `data.columns` names them.

    >>> list_keys({"id": 1, "answers": {"text": ["a"]}})
    ['id', 'answers', 'answers.text']
    """
    keys = []
    for key, value in row.items():
        keys.append(key)
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping) and depth > 1:
            keys += [f"{key}.{below}" for below in list_keys(inner, depth - 1)]
    return keys
