"""The reader of FASTA files: named protein sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headwise.data.files import read_lines
from headwise.errors import UserError
from headwise.proteins.residues import LETTERS

SUFFIXES = (".fasta", ".fa", ".faa")


@dataclass(frozen=True)
class FastaEntry:
    """A name, which is the header up to its first space, and a text as in the file, without white space."""

    name: str
    text: str
    line: int


@dataclass(frozen=True)
class NamedSequence:
    """A protein sequence of `residues.RESIDUE_TYPES` and its name."""

    name: str
    sequence: str


def read_fasta(path: Path) -> list[NamedSequence]:
    """Protein sequences, in capital or small letters; a final * is dropped. Other letters than those of amino acids
    are an error."""
    return [
        NamedSequence(entry.name, parse_sequence(entry.text.removesuffix("*"), f"{path}, line {entry.line}"))
        for entry in read_entries(path)
    ]


def parse_sequence(text: str, place: str) -> str:
    """Check the letters of a sequence and turn them into those of `residues.RESIDUE_TYPES`.

    >>> parse_sequence("mkuB", "here")
    'MKCD'
    """
    if not text:
        raise UserError(f"{place}: has no sequence; write its letters after the name")
    letters = text.upper()
    if strange := next((letter for letter in letters if letter not in LETTERS), ""):
        raise UserError(
            f"{place}: '{strange}' is no amino acid; write X where a residue is not known (letters: {''.join(LETTERS)})"
        )
    return "".join(LETTERS[letter] for letter in letters)


def read_entries(path: Path) -> Iterator[FastaEntry]:
    """The entries of a file in FASTA's form, whatever their letters."""
    return parse_entries(read_lines(path), str(path))


def parse_entries(lines: Iterable[tuple[int, str]], place: str) -> Iterator[FastaEntry]:
    """The entries of numbered lines in FASTA's form; `place` is the file that errors name."""
    name, start, parts = "", 0, list[str]()
    for number, line in lines:
        if line.startswith(">"):
            if start:
                yield FastaEntry(name, "".join(parts), start)
            name, start, parts = (line[1:].split() or [""])[0], number, []
        elif line.strip() and not line.startswith(";"):
            if not start:
                raise UserError(f"{place}, line {number}: a FASTA file begins with > and a name; add this line")
            parts.append("".join(line.split()))
    if not start:
        raise UserError(f"{place}: has no sequences; a FASTA file has lines of > and a name, and sequences after them")
    yield FastaEntry(name, "".join(parts), start)
