"""Alignment files by their name: A3M, Stockholm, or FASTA with one sequence or aligned ones."""

from __future__ import annotations

from pathlib import Path

from headwise.data.compression import strip_suffix
from headwise.errors import UserError
from headwise.proteins.alignments import Alignment
from headwise.proteins.readers.a3m import read_a3m
from headwise.proteins.readers.stockholm import read_stockholm

READERS = {
    ".a3m": read_a3m,
    ".fasta": read_a3m,
    ".fa": read_a3m,
    ".faa": read_a3m,
    ".sto": read_stockholm,
    ".stk": read_stockholm,
}


def read_alignment(path: Path) -> Alignment:
    """An alignment, plain or compressed."""
    reader = READERS.get(Path(strip_suffix(path.name)).suffix.lower())
    if reader is None:
        raise UserError(f"{path}: alignments are read from {', '.join(READERS)} files, plain or compressed")
    return reader(path)
