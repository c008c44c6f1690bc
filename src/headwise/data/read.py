"""Pairs of texts from files in any `data.format`; errors name the line or row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from headwise.data.config import UNPAIRED
from headwise.data.files import TEXT_SUFFIXES, find_files, is_pattern, read_lines
from headwise.data.formats import FOLDERS, SUFFIXES
from headwise.data.readers.arrow import list_datasets_files
from headwise.data.readers.base import ReadOptions, Record
from headwise.data.readers.tables import READERS
from headwise.data.readers.text import read_texts
from headwise.data.texts import Pair, join_pieces
from headwise.errors import UserError

PLAIN = ReadOptions()
UNITS = {"parquet": "row", "arrow": "row", "squad": "question"}  # what numbers of records count; others: lines


def read_pairs(files: tuple[Path, ...], format: str = "tsv", options: ReadOptions = PLAIN) -> Iterator[Pair]:
    """Read the pairs of files, folders and patterns in this format, or of two files aligned line by line; or texts with
    empty sources.

    Two files without columns whose format is "tsv" are aligned (`are_aligned`).
    """
    aligned = are_aligned(files, format, options)
    files = files if aligned else expand_files(files, format)
    if format in UNPAIRED:
        yield from join_pieces(("", text) for text in read_texts(files, format))
        return
    for record in read_records(files, format, options, aligned):
        yield record.source, record.target


def are_aligned(files: tuple[Path, ...], format: str, options: ReadOptions = PLAIN) -> bool:
    """Whether these paths are a file of sources and one of targets, aligned line by line."""
    single = not any(is_pattern(file) or file.is_dir() for file in files)
    return len(files) == 2 and format == "tsv" and not options.columns and single


def expand_files(paths: Iterable[Path], format: str) -> tuple[Path, ...]:
    """The files that paths, folders and patterns stand for, in a stable order."""
    files: list[Path] = []
    for path in paths:
        if format == "arrow" and (path / "state.json").is_file():
            files += list_datasets_files(path)
        else:
            files += find_files(
                [path], TEXT_SUFFIXES if format in UNPAIRED else {**SUFFIXES, **FOLDERS}.get(format, TEXT_SUFFIXES)
            )
    return tuple(files)


def read_records(
    files: tuple[Path, ...], format: str, options: ReadOptions = PLAIN, aligned: bool = False
) -> Iterator[Record]:
    """Read the records of files, stripped and checked.

    Records that are empty on both sides are skipped; one that is empty on one side is an error, unless there is one
    column alone, or `options.skip_incomplete` leaves it out. With `options.one_to_one` the targets are tags, and a
    record must have as many tags as words.
    """
    sides = [files] if aligned else [(file, file) for file in files]
    unit = UNITS.get(format, "line")
    unpaired = len(options.columns) == 1
    empty = True
    for first, last in sides:
        records = _read_aligned(first, last) if aligned else READERS[format](first, options)
        for record in records:
            number, source, target, group = record
            source, target = source.strip(), target.strip()
            unchanged = source is record.source and target is record.target
            if not (source and target) and not (unpaired and target):
                if options.skip_incomplete or not (source or target):
                    continue
                side, file = ("target", last) if not target else ("source", first)
                raise UserError(f"{file}, {unit} {number}: the {side} is empty; fill it in or remove the {unit}")
            if options.one_to_one and (words := len(source.split())) != (tags := len(target.split())):
                raise UserError(f"{last}, {unit} {number}: {words} words but {tags} tags; give each word one tag")
            empty = False
            yield record if unchanged else Record(number, source, target, group)
    if empty:
        what = "texts" if unpaired else "pairs"
        raise UserError(f"{' and '.join(map(str, files))}: has no {what}; check that it is the right file")


def _read_aligned(first: Path, second: Path) -> Iterator[Record]:
    """Read two files aligned line by line."""
    for left, right in zip_longest(read_lines(first), read_lines(second)):
        if left is None or right is None:
            number, longer, shorter = (left[0], first, second) if left else (right[0], second, first)
            raise UserError(
                f"{longer}, line {number}: {shorter} ends after line {number - 1}; "
                "the two files must be aligned line by line"
            )
        yield Record(left[0], left[1], right[1])
