"""Pairs of texts from files in any `data.format`; errors name the line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

from headwise.data.config import UNPAIRED
from headwise.data.files import find_files, read_lines
from headwise.data.readers.base import Columns, ReadOptions, Record
from headwise.data.readers.tables import READERS
from headwise.data.readers.text import read_texts
from headwise.data.texts import Pair, join_pieces
from headwise.errors import UserError


def read_pairs(
    files: tuple[Path, ...],
    format: str = "tsv",
    column: str = "upos",
    one_to_one: bool = False,
    columns: Columns = (),
) -> Iterator[Pair]:
    """Read the pairs of one file in this format, or of two files aligned line by line; or texts with empty sources, of
    any number of files, folders and patterns.

    Lines that are empty on both sides are skipped; a line that is empty on one side is an error. `column` is the column
    of the tags in CoNLL-U, `columns` are those of the texts and the label in a table. With `one_to_one` the targets are
    tags, and a line must have as many tags as words.
    """
    if format in UNPAIRED:
        yield from join_pieces(("", text) for text in read_texts(find_files(files), format))
        return
    empty = True
    for number, *sides in _read_records(files, format, ReadOptions(column, columns)):
        source, target = (side.strip() for side in sides)
        if not source and not target:
            continue
        if not target or not source:
            side, file = ("target", files[-1]) if not target else ("source", files[0])
            raise UserError(f"{file}, line {number}: the {side} is empty; fill it in or remove the line")
        if one_to_one and (words := len(source.split())) != (tags := len(target.split())):
            raise UserError(f"{files[-1]}, line {number}: {words} words but {tags} tags; give each word one tag")
        empty = False
        yield source, target
    if empty:
        raise UserError(f"{' and '.join(map(str, files))}: has no pairs; check that it is the right file")


def _read_records(files: tuple[Path, ...], format: str, options: ReadOptions) -> Iterator[Record]:
    if len(files) == 2 and not options.columns:
        return _read_aligned(*files)
    return chain.from_iterable(READERS[format](file, options) for file in files)


def _read_aligned(first: Path, second: Path) -> Iterator[Record]:
    """Read two files aligned line by line."""
    for left, right in zip_longest(read_lines(first), read_lines(second)):
        if left is None or right is None:
            number, longer, shorter = (left[0], first, second) if left else (right[0], second, first)
            raise UserError(
                f"{longer}, line {number}: {shorter} ends after line {number - 1}; "
                "the two files must be aligned line by line"
            )
        yield left[0], left[1], right[1]
