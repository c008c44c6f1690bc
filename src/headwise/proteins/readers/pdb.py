"""The reader of PDB files (format 3.3): fixed columns, the first model, full sequences from SEQRES."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from headwise.data.files import read_lines
from headwise.errors import UserError
from headwise.proteins.readers.atom_sites import AtomSite, build_chains
from headwise.proteins.structure import Structure


def read_pdb(path: Path) -> tuple[Structure, ...]:
    """The protein chains of a PDB file's first model, plain or compressed. What follows a chain's TER, ligands and
    waters, is left out."""
    sequences: dict[str, list[str]] = {}
    return build_chains(list(_read_sites(path, sequences)), sequences, path)


def _read_sites(path: Path, sequences: dict[str, list[str]]) -> Iterator[AtomSite]:
    ended: set[str] = set()
    found = False
    for number, line in read_lines(path):
        record = line[:6].rstrip()
        if record in ("ATOM", "HETATM"):
            found = True
            site = _parse_site(line, f"{path}, line {number}")
            if site.chain not in ended:
                yield site
        elif record == "SEQRES":
            sequences.setdefault(line[11:12].strip(), []).extend(line[19:70].split())
        elif record == "TER" and found:
            ended.add(site.chain)
        elif record == "ENDMDL":
            break
    if not found:
        raise UserError(f"{path}: has no ATOM lines, so it is no PDB file; give a .pdb or .cif file of a structure")


def _parse_site(line: str, place: str) -> AtomSite:
    try:
        x, y, z = (float(line[start : start + 8]) for start in (30, 38, 46))
        occupancy = float(line[54:60]) if line[54:60].strip() else 1.0
    except ValueError:
        raise UserError(f"{place}: coordinates are numbers in columns 31 to 54; write the file again") from None
    if not all(map(math.isfinite, (x, y, z, occupancy))):
        raise UserError(f"{place}: a coordinate is not finite; write the file again")
    return AtomSite(
        chain=line[21:22].strip(),
        number=line[22:27].replace(" ", ""),
        residue=line[17:20].strip(),
        atom=line[12:16].strip(),
        location=line[16:17].strip(),
        occupancy=occupancy,
        position=(x, y, z),
    )
