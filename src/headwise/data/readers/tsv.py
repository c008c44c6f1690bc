"""TSV: source TAB target, or a table of which some columns are read, as in GLUE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwise.data.files import read_lines
from headwise.data.readers.base import Columns, ReadOptions, Record
from headwise.errors import UserError, nearest
from headwise.text.paired import SEPARATOR


def read_tsv(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read source TAB target, ignoring further columns; with `options.columns`, a table."""
    if options.columns:
        yield from read_table(path, options.columns)
        return
    for number, line in read_lines(path):
        source, tab, rest = line.partition("\t")
        if not tab and line.strip():
            raise UserError(f"{path}, line {number}: no tab; a line is source, tab, target")
        yield number, source, rest.partition("\t")[0]


def read_table(path: Path, columns: Columns) -> Iterator[Record]:
    """Read the texts and the label of each line; several texts are joined by a tab.

    Columns are named as in the header line, or numbered from 1 in a file without a header. The last one is the label.
    Quotes are part of the text.
    """
    lines = read_lines(path)
    if names := [column for column in columns if isinstance(column, str)]:
        if len(names) < len(columns):
            raise UserError("data.columns: name all columns, or number all of them")
        _, line = next(lines, (1, ""))
        header = line.split("\t")
        indices = [_find_column(path, header, name) for name in names]
    else:
        indices = [int(column) - 1 for column in columns]
    for number, line in lines:
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) <= max(indices):
            counts = f"has {len(cells)} columns, and column {max(indices) + 1} is read"
            raise UserError(f"{path}, line {number}: {counts}; correct the line or data.columns")
        *texts, label = (cells[index].strip() for index in indices)
        if not all(texts):
            raise UserError(f"{path}, line {number}: a text is empty; fill it in or remove the line")
        yield number, SEPARATOR.join(texts), label


def _find_column(path: Path, header: list[str], name: str) -> int:
    if name not in header:
        raise UserError(f"{path}, line 1: there is no column '{name}'; {nearest(name, header)}")
    return header.index(name)
