"""The reader of mmCIF files: the `atom_site` table of the first model, full sequences from `pdbx_poly_seq_scheme`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwise.data.files import read_lines
from headwise.errors import UserError
from headwise.proteins.readers.atom_sites import AtomSite, build_chains
from headwise.proteins.structure import Structure

# A value: in quotes, which end before a space or the end of the line, or up to the next space; or a comment.
_VALUE = re.compile(r"""'((?:[^']|'(?=\S))*)'(?=\s|$)|"((?:[^"]|"(?=\S))*)"(?=\s|$)|(#.*)|(\S+)""")
NEEDED = ("Cartn_x", "Cartn_y", "Cartn_z", "label_atom_id", "label_comp_id", "label_asym_id", "label_seq_id")
_NULL = (".", "?")


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a CIF file; `bare` if it is not in quotes and so may be a keyword."""

    text: str
    bare: bool
    line: int


def read_mmcif(path: Path) -> tuple[Structure, ...]:
    """The protein chains of an mmCIF file's first model, plain or compressed, under the authors' names and numbers."""
    tables = read_tables(path, ("atom_site", "pdbx_poly_seq_scheme"))
    rows = tables.get("atom_site", [])
    if not rows:
        raise UserError(f"{path}: has no atom_site table, so it is no structure; give a .pdb or .cif file of one")
    if absent := [key for key in NEEDED if key not in rows[0]]:
        raise UserError(f"{path}: its atom_site table has no {absent[0]}; give a complete mmCIF file")
    names = {row["label_asym_id"]: row.get("auth_asym_id", row["label_asym_id"]) for row in rows}
    first = rows[0].get("pdbx_PDB_model_num", "1")
    sites = [
        _parse_site(row, path)
        for row in rows
        if row.get("pdbx_PDB_model_num", "1") == first and row["label_seq_id"] not in _NULL
    ]
    return build_chains(sites, _read_sequences(tables.get("pdbx_poly_seq_scheme", []), names), path)


def _read_sequences(rows: list[dict[str, str]], names: dict[str, str]) -> dict[str, list[str]]:
    """Residue names of each chain, one for each place: of different residues at one place, the first is listed."""
    sequences: dict[str, dict[str, str]] = {}
    for row in rows:
        chain, place, residue = row.get("asym_id", ""), row.get("seq_id", ""), row.get("mon_id", "")
        sequences.setdefault(names.get(chain, chain), {}).setdefault(place, residue)
    return {chain: list(residues.values()) for chain, residues in sequences.items()}


def _parse_site(row: dict[str, str], path: Path) -> AtomSite:
    def get(key: str, fallback: str = "") -> str:
        value = row.get(key, fallback)
        return fallback if value in _NULL else value

    try:
        x, y, z = (float(row[key]) for key in ("Cartn_x", "Cartn_y", "Cartn_z"))
        occupancy, place = float(get("occupancy", "1")), int(row["label_seq_id"]) - 1
        if not all(map(math.isfinite, (x, y, z, occupancy))):
            raise ValueError
    except ValueError:
        raise UserError(f"{path}: atom {row.get('id', '?')} has no valid coordinates; write the file again") from None
    return AtomSite(
        chain=get("auth_asym_id", row["label_asym_id"]),
        number=get("auth_seq_id", row["label_seq_id"]) + get("pdbx_PDB_ins_code"),
        residue=row["label_comp_id"],
        atom=row["label_atom_id"],
        location=get("label_alt_id"),
        occupancy=occupancy,
        position=(x, y, z),
        place=place,
    )


def read_tables(path: Path, names: tuple[str, ...]) -> dict[str, list[dict[str, str]]]:
    """The rows of some categories of a CIF file, by column; values of a category without a loop are one row."""
    tables: dict[str, list[dict[str, str]]] = {}
    tokens = _Tokens(path)
    for token in tokens:
        if token.bare and token.text.lower() == "loop_":
            columns, rows = _read_loop(tokens, path, token.line)
            category = columns[0].partition(".")[0].removeprefix("_")
            if category in names:
                keys = [column.partition(".")[2] for column in columns]
                tables.setdefault(category, []).extend(dict(zip(keys, row, strict=True)) for row in rows)
        elif token.bare and token.text.startswith("_"):
            category, _, key = token.text[1:].partition(".")
            value = next(tokens, None)
            if value is None:
                raise UserError(f"{path}, line {token.line}: {token.text} has no value; the file is incomplete")
            if category in names:
                tables.setdefault(category, [{}])[0][key] = value.text
    return tables


class _Tokens(Iterator[Token]):
    """The tokens of a CIF file, one of which can be given back."""

    def __init__(self, path: Path):
        self.stream = _read_tokens(path)
        self.returned: list[Token] = []

    def __next__(self) -> Token:
        return self.returned.pop() if self.returned else next(self.stream)

    def give_back(self, token: Token) -> None:
        self.returned.append(token)


def _read_loop(tokens: _Tokens, path: Path, line: int) -> tuple[list[str], list[list[str]]]:
    columns: list[str] = []
    values: list[str] = []
    for token in tokens:
        if token.bare and token.text.startswith("_") and not values:
            columns.append(token.text)
        elif token.bare and (token.text[0] == "_" or token.text.lower().startswith(("loop_", "data_", "save_"))):
            tokens.give_back(token)
            break
        else:
            values.append(token.text)
    width = len(columns)
    if not width or len(values) % width:
        raise UserError(
            f"{path}, line {line}: {len(values)} values do not fill rows of {width}; the file is incomplete"
        )
    return columns, [values[start : start + width] for start in range(0, len(values), width)]


def _read_tokens(path: Path) -> Iterator[Token]:
    block: list[str] | None = None  # lines of a text between semicolons
    for number, line in read_lines(path):
        if block is not None:
            if not line.startswith(";"):
                block.append(line)
                continue
            yield Token("\n".join(block), False, number)
            block, line = None, line[1:]
        elif line.startswith(";"):
            block = [line[1:]]
            continue
        for match in _VALUE.finditer(line):
            single, double, comment, bare = match.groups()
            if comment is None:
                text = single if single is not None else double if double is not None else bare
                yield Token(text, bare is not None, number)
    if block is not None:
        raise UserError(f"{path}: a text between semicolons does not end; the file is incomplete")
