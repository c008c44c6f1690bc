"""The reader of A3M alignments (HH-suite): small letters are insertions, which are counted and left out."""

from __future__ import annotations

from pathlib import Path

from headwise.proteins.alignments import Alignment
from headwise.proteins.readers.fasta import read_entries


def read_a3m(path: Path) -> Alignment:
    """An alignment in A3M, plain or compressed; an aligned FASTA file is one without insertions."""
    entries = [entry for entry in read_entries(path) if not entry.name.startswith(("ss_", "sa_"))]  # HH-suite's tracks
    rows, deletions = zip(*(split_insertions(entry.text) for entry in entries), strict=True)
    return Alignment.from_rows(rows, deletions, [entry.name for entry in entries], str(path))


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
