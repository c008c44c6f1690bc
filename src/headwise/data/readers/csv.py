"""CSV (RFC 4180): cells may be quoted, and a quoted cell may have separators, doubled quotes and line breaks."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from headwise.data.files import read_line_blocks, read_lines
from headwise.data.readers.base import ReadOptions, Record
from headwise.data.readers.columns import build_records, select_cells
from headwise.errors import UserError

SEPARATORS = ("\t", ";", "|", ",")  # of those that split a file alike, the first
SAMPLE_LINES = 200  # from which the separator is found
MAX_CELL = 2**24  # characters: a quote that is never closed would read the whole file


def read_csv(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the columns that `options.columns` selects; the first two if it is empty."""
    options = options if options.columns else replace(options, columns=(1, 2))
    yield from build_records(path, select_cells(path, read_rows(path, options), options), options)


def read_rows(path: Path, options: ReadOptions) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, with the number of its first line. Empty lines are skipped."""
    separator = options.separator or find_separator(path, options)
    csv.field_size_limit(MAX_CELL)
    lines = chain.from_iterable([line + "\n" for line in block] for block in read_line_blocks(path))
    reader = csv.reader(
        lines, delimiter=separator, quoting=csv.QUOTE_MINIMAL if options.quoted else csv.QUOTE_NONE, strict=True
    )
    number = 1
    try:
        for cells in reader:
            if cells:
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}, line {number}: {_explain(str(error), separator)}") from None


def _explain(error: str, separator: str) -> str:
    """What is wrong with a row, and what to do."""
    if "field limit" in error or "unexpected end" in error:
        return "a quote opens a cell and is never closed; close it, or double it if it belongs to the text"
    if "expected after" in error:
        return (
            f"text between a closing quote and the next {separator!r}; double the quotes that belong to a cell, and "
            "put no space after one that closes it"
        )
    if "new-line character" in error:
        return "a carriage return without a line feed; convert the line ends, such as with: tr '\\r' '\\n'"
    return f"not CSV ({error}); correct the line"


def find_separator(path: Path, options: ReadOptions) -> str:
    """The separator of a file's first rows: one whose header has the columns that are read, or else one that splits
    most rows into the same number of cells."""
    lines = [line + "\n" for _, line in islice(read_lines(path), SAMPLE_LINES)]
    names = {column for column in options.columns if isinstance(column, str)}
    least = max([column for column in options.columns if isinstance(column, int)], default=1)
    scores: dict[str, float] = {}
    for separator in SEPARATORS:
        rows = _split_sample(lines, separator)
        if not rows:
            continue
        if names and names <= {cell.strip() for cell in rows[0]}:
            return separator
        (width, count), *_ = Counter(map(len, rows)).most_common(1)
        scores[separator] = count / len(rows) if width >= max(least, 2) else 0.0
    best = max(scores.values(), default=0.0)
    return next(iter(sorted(scores, key=scores.__getitem__, reverse=True)), ",") if best else ","


def _split_sample(lines: list[str], separator: str) -> list[list[str]]:
    """The complete rows of these lines."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(lines, delimiter=separator, strict=len(lines) < SAMPLE_LINES):
            if row:
                rows.append(row)
    except csv.Error:
        pass
    return rows[:-1] if len(lines) == SAMPLE_LINES and len(rows) > 1 else rows
