"""Structure files by their name: PDB or mmCIF, plain or compressed."""

from __future__ import annotations

from pathlib import Path

from headwise.data.compression import strip_suffix
from headwise.errors import UserError
from headwise.proteins.readers.mmcif import read_mmcif
from headwise.proteins.readers.pdb import read_pdb
from headwise.proteins.structure import Structure

READERS = {".pdb": read_pdb, ".ent": read_pdb, ".cif": read_mmcif, ".mmcif": read_mmcif}


def read_chains(path: Path) -> tuple[Structure, ...]:
    """All protein chains of a structure file."""
    reader = READERS.get(Path(strip_suffix(path.name)).suffix.lower())
    if reader is None:
        raise UserError(f"{path}: structures are read from {', '.join(READERS)} files, plain or compressed")
    return reader(path)


def read_unbroken_chain(path: Path, chain: str = "") -> Structure:
    """One chain of which every residue is known and bonded to the next, as torsions need it; others are refused."""
    structure = read_chain(path, chain)
    if breaks := structure.find_breaks():
        number = structure.residue_numbers[breaks[0]] or f"at place {breaks[0] + 1}"
        raise UserError(
            f"{path}: chain {structure.chain} is broken after residue {number}; choose another chain, or cut it there"
        )
    return structure


def read_chain(path: Path, chain: str = "") -> Structure:
    """One protein chain of a structure file: that of this name, or the first one."""
    chains = read_chains(path)
    matches = [structure for structure in chains if not chain or structure.chain == chain]
    if not matches:
        names = ", ".join(structure.chain for structure in chains)
        raise UserError(f"{path}: has no protein chain '{chain}'; it has {names}")
    return matches[0]
