"""TSV: source TAB target, or a table of which some columns are read, as in GLUE. Quotes are part of the text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwise.data.files import read_lines
from headwise.data.formats import guess_format
from headwise.data.readers.base import ReadOptions, Record
from headwise.data.readers.columns import build_records, select_cells
from headwise.errors import UserError


def read_tsv(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read source TAB target, ignoring further columns; with `options.columns`, a table."""
    if options.columns:
        rows = ((number, line.split("\t")) for number, line in read_lines(path) if line.strip())
        yield from build_records(path, select_cells(path, rows, options), options)
        return
    for number, line in read_lines(path):
        if number == 1 and options.has_header:
            continue
        source, tab, rest = line.partition("\t")
        if not tab and line.strip():
            raise UserError(f"{path}, line {number}: no tab; a line is source, tab, target{_suggest_format(path)}")
        yield Record(number, source, rest.partition("\t")[0])


def _suggest_format(path: Path) -> str:
    """The end of the error for a file that ends as one of another format does."""
    format = guess_format(path)
    return f", or set data.format = '{format}'" if format not in ("", "tsv") else ""
