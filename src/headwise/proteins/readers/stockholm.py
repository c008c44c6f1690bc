"""The reader of Stockholm alignments (Pfam, HMMER), whose rows may be in several blocks."""

from __future__ import annotations

from pathlib import Path

from headwise.data.files import read_lines
from headwise.errors import UserError
from headwise.proteins.alignments import GAPS, Alignment


def read_stockholm(path: Path) -> Alignment:
    """An alignment in Stockholm format, plain or compressed. Columns where the first row, the query, has a gap are
    left out and counted as deletions of the other rows."""
    rows: dict[str, list[str]] = {}
    for number, line in read_lines(path):
        if number == 1 and not line.startswith("# STOCKHOLM"):
            raise UserError(f"{path}: a Stockholm file begins with '# STOCKHOLM 1.0'; give one, or an .a3m file")
        if line.startswith("//"):
            break
        if line.strip() and not line.startswith("#"):
            name, _, text = line.partition(" ")
            rows.setdefault(name, []).append(text.strip())
    texts = ["".join(parts) for parts in rows.values()]
    names = list(rows)
    widths = {len(text) for text in texts}
    if len(widths) > 1:  # before columns are left out: from_rows names the row
        Alignment.from_rows(texts, [], names, str(path))
    aligned = [keep_query_columns(text.upper(), texts[0]) for text in texts]
    return Alignment.from_rows([row for row, _ in aligned], [counts for _, counts in aligned], names, str(path))


def keep_query_columns(row: str, query: str) -> tuple[str, list[int]]:
    """The letters of a row in the query's columns, and how many residues were left out before each.

    >>> keep_query_columns("MKAV", "M-.V")
    ('MV', [0, 2])
    """
    letters, deletions, count = [], [], 0
    for letter, column in zip(row, query, strict=True):
        if column not in GAPS:
            letters.append(letter)
            deletions.append(count)
            count = 0
        else:
            count += letter not in GAPS
    return "".join(letters), deletions
