"""Structure files by their name: PDB or mmCIF, plain or compressed."""

from __future__ import annotations

from pathlib import Path

from headwise.data.compression import strip_suffix
from headwise.errors import UserError
from headwise.proteins.readers.mmcif import read_mmcif
from headwise.proteins.readers.pdb import read_pdb
from headwise.proteins.residues import CA, UNKNOWN, C, N
from headwise.proteins.structure import Structure

READERS = {".pdb": read_pdb, ".ent": read_pdb, ".cif": read_mmcif, ".mmcif": read_mmcif}
MIN_RESIDUES = 3  # with which a superposition is defined


def read_chains(path: Path) -> tuple[Structure, ...]:
    """All protein chains of a structure file."""
    reader = READERS.get(Path(strip_suffix(path.name)).suffix.lower())
    if reader is None:
        raise UserError(f"{path}: structures are read from {', '.join(READERS)} files, plain or compressed")
    return reader(path)


def read_chain(path: Path, chain: str = "") -> Structure:
    """One protein chain of a structure file: that of this name, or the first one."""
    return select_chains(path, chain)[0]


def select_chains(path: Path, chain: str = "") -> tuple[Structure, ...]:
    """Protein chains of a structure file: that of this name, all (`*`), or the first one."""
    chains = read_chains(path)
    if chain == "*":
        return chains
    matches = [structure for structure in chains if not chain or structure.chain == chain]
    if not matches:
        names = ", ".join(structure.chain for structure in chains)
        raise UserError(f"{path}: has no protein chain '{chain}'; it has {names}")
    return tuple(matches[:1])


def check_complete(structure: Structure, path: Path) -> None:
    """Refuse a chain unless every residue is known and bonded to the next, as torsions need it."""
    if breaks := structure.find_breaks():
        where = describe_residue(structure, breaks[0])
        raise UserError(
            f"{path}: chain {structure.chain} is broken after {where}; choose another chain, cut it there, or mask "
            'what is missing with data.incomplete = "mask"'
        )
    if (unknown := structure.sequence.find(UNKNOWN)) >= 0:
        where = describe_residue(structure, unknown)
        raise UserError(
            f"{path}: {where} of chain {structure.chain} is no known amino acid; choose another chain, or accept its "
            'backbone with data.incomplete = "mask"'
        )
    check_gaps(structure, path)


def check_gaps(structure: Structure, path: Path) -> None:
    """Refuse a chain whose residues are too few, or not bonded where nothing is missing between them: then the file
    does not say how many residues lie between, and their numbers would be wrong."""
    known = structure.mask[:, [N, C]].all(-1).tolist()
    for place in structure.find_breaks():
        if known[place] and known[place + 1]:
            where = describe_residue(structure, place)
            raise UserError(
                f"{path}: chain {structure.chain} is broken after {where}, and the file does not list the residues "
                "between; give one with SEQRES, or choose another chain"
            )
    if int(structure.mask[:, CA].sum()) < MIN_RESIDUES:
        raise UserError(
            f"{path}: chain {structure.chain} has fewer than {MIN_RESIDUES} residues with Cα; choose another chain"
        )


def describe_residue(structure: Structure, place: int) -> str:
    """The number of a residue in its file, or its place in the sequence."""
    number = structure.residue_numbers[place]
    return f"residue {number}" if number else f"the residue at place {place + 1} of its sequence"
