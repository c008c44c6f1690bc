"""The reader of A3M alignments (HH-suite): small letters are insertions, which are counted and left out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headwise.proteins.alignments import Alignment
from headwise.proteins.readers.fasta import FastaEntry, parse_entries, read_entries


def read_a3m(path: Path) -> Alignment:
    """An alignment in A3M, plain or compressed; an aligned FASTA file is one without insertions."""
    return build_alignment(read_entries(path), str(path))


def parse_a3m(text: str, place: str) -> Alignment:
    """The alignment of a text in A3M or FASTA; `place` is what errors name."""
    return build_alignment(parse_entries(enumerate(text.splitlines(), 1), place), place)


def build_alignment(entries: Iterable[FastaEntry], place: str) -> Alignment:
    """The alignment of a file's entries."""
    kept = [entry for entry in entries if not entry.name.startswith(("ss_", "sa_"))]  # HH-suite's tracks
    rows, deletions = zip(*(split_insertions(entry.text) for entry in kept), strict=True)
    return Alignment.from_rows(rows, deletions, [entry.name for entry in kept], place)


def split_insertions(text: str) -> tuple[str, list[int]]:
    """The aligned letters of a row, and how many small letters stand before each.

    >>> split_insertions("MKabVc")
    ('MKV', [0, 0, 2])
    """
    letters, deletions, count = [], [], 0
    for letter in text:
        if letter.islower():
            count += 1
        else:
            letters.append(letter)
            deletions.append(count)
            count = 0
    return "".join(letters), deletions
