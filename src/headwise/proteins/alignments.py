"""Multiple sequence alignments (MSA): rows of residues and gaps under a query.

Letters: N rows, L columns, which are the residues of the query, the first row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from headwise.errors import UserError
from headwise.proteins.residues import GAP_INDEX, LETTERS, RESIDUE_INDEX, decode_sequence, encode_sequence
from headwise.proteins.structure import Structure

GAPS = "-."  # characters of a gap
_INDEX = {letter: RESIDUE_INDEX[residue] for letter, residue in LETTERS.items()} | dict.fromkeys(GAPS, GAP_INDEX)


@dataclass(frozen=True, eq=False)
class Alignment:
    """A multiple sequence alignment; the first row is the query, without gaps.

    >>> alignment = Alignment.from_rows(["MKV", "M-V"], [[0, 0, 0], [0, 2, 0]])
    >>> len(alignment), alignment.length, alignment.query, alignment.get_row(1)
    (2, 3, 'MKV', 'M-V')
    """

    rows: Tensor  # (N, L) int64: residue types, 20 unknown, 21 gap
    deletions: Tensor  # (N, L) int64: residues of the row that are left out before each column
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rows.shape != self.deletions.shape or self.rows.dim() != 2:
            raise ValueError(f"rows and deletions have shapes {self.rows.shape} and {self.deletions.shape}, not (N, L)")

    @classmethod
    def from_rows(
        cls, rows: Sequence[str], deletions: Sequence[Sequence[int]], names: Sequence[str] = (), place: str = "the rows"
    ) -> Alignment:
        """Rows of equal length as letters of residues and gaps; `place` is the file that errors name."""
        if not rows or not rows[0]:
            raise UserError(f"{place}: the alignment is empty; it needs a query and, under it, aligned sequences")
        for number, row in enumerate(rows):
            who = f"row {number + 1}" + (f" ({names[number]})" if names else "")
            if len(row) != len(rows[0]):
                raise UserError(
                    f"{place}: {who} has {len(row)} columns and the query {len(rows[0])}; align the rows to one length"
                )
            if strange := next((letter for letter in row if letter not in _INDEX), ""):
                raise UserError(f"{place}: {who} has '{strange}', which is no amino acid; write X if it is not known")
        if gap := next((place for place, letter in enumerate(rows[0], 1) if letter in GAPS), 0):
            raise UserError(f"{place}: the query, its first row, has a gap in column {gap}; leave out such columns")
        indices = torch.tensor([[_INDEX[letter] for letter in row] for row in rows])
        return cls(indices, torch.tensor(deletions), tuple(names))

    def __len__(self) -> int:
        return self.rows.shape[0]

    @property
    def length(self) -> int:
        return self.rows.shape[1]

    @property
    def query(self) -> str:
        return self.get_row(0)

    def check_query(self, sequence: str, path: Path, whose: str) -> None:
        """Refuse an alignment of another sequence; `path` is its file, and `whose` the sequence is, for the error."""
        if self.query == sequence:
            return
        advice = "give an alignment whose first row is that sequence"
        if self.length != len(sequence):
            raise UserError(f"{path}: its query has {self.length} residues and {whose} {len(sequence)}; {advice}")
        place = next(place for place, pair in enumerate(zip(self.query, sequence, strict=True)) if len(set(pair)) > 1)
        letters = f"{self.query[place]} at residue {place + 1}, {whose} {sequence[place]}"
        raise UserError(f"{path}: its query has {letters}; {advice}")

    def get_row(self, number: int) -> str:
        """One row as letters."""
        return decode_sequence(self.rows[number].tolist())

    def select(self, rows: Tensor) -> Alignment:
        """Some of the rows, by their numbers."""
        names = tuple(self.names[row] for row in rows.tolist()) if self.names else ()
        return replace(self, rows=self.rows[rows], deletions=self.deletions[rows], names=names)

    def compute_profile(self) -> Tensor:
        """The share of each residue type, unknown and gap in each column, (L, 22)."""
        return torch.nn.functional.one_hot(self.rows, GAP_INDEX + 1).float().mean(0)


def make_single_row(sequence: str) -> Alignment:
    """The alignment of a sequence for which there is none: the query alone."""
    rows = torch.tensor([encode_sequence(sequence)])
    return Alignment(rows, torch.zeros_like(rows), ("query",))


@dataclass(frozen=True, eq=False)
class AlignedChain:
    """An example of folding: a structure, and an alignment whose query is its sequence."""

    structure: Structure
    alignment: Alignment
    secondary: str  # L states: H, E, C; empty: not known
