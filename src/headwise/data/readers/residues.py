"""Protein sequences with the secondary structure of each residue: a table with columns `sequence` and `dssp`.

Both are strings of letters of equal length. A record has spaces between them: residues are words, states their tags.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwise.data.readers.base import ReadOptions, Record
from headwise.data.readers.tsv import read_tsv
from headwise.errors import UserError

COLUMNS = ("sequence", "dssp")


def read_residues(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the residues of each sequence and their states, both joined by spaces."""
    for number, sequence, states, _ in read_tsv(path, ReadOptions(columns=COLUMNS)):
        sequence, states = sequence.strip(), states.strip()
        if len(sequence) != len(states):
            raise UserError(
                f"{path}, line {number}: {len(sequence)} residues but {len(states)} states; give each residue one state"
            )
        yield Record(number, " ".join(sequence), " ".join(states))
