"""The writer of PDB files (format 3.3)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from headwise.errors import UserError
from headwise.proteins.residues import ATOMS, THREE_LETTERS
from headwise.proteins.structure import Structure
from headwise.utils.files import write

MAX_ATOMS = 99_999
_NO_VALUES = torch.zeros(0)


def write_pdb(path: Path, structure: Structure, b_factors: Tensor = _NO_VALUES) -> Path:
    """Write a chain, atomically. `b_factors`, (L,), fill the column of B-factors, such as pLDDT in 0..100."""
    return write(path, format_pdb(structure, b_factors))


def format_pdb(structure: Structure, b_factors: Tensor = _NO_VALUES) -> str:
    """A chain as the text of a PDB file: SEQRES, atoms with coordinates, TER and END."""
    if int(structure.mask.sum()) > MAX_ATOMS:
        raise UserError(f"a PDB file holds {MAX_ATOMS:,} atoms; write fewer residues")
    values = b_factors.tolist() if len(b_factors) else [0.0] * len(structure)
    chain = structure.chain[:1] or "A"
    lines, serial = _format_sequence(structure, chain), 1
    last = ""
    for index, letter in enumerate(structure.sequence):
        number, code = _split_number(structure.residue_numbers[index], index)
        for atom in structure.mask[index].nonzero().flatten().tolist():
            name, position = ATOMS[atom], structure.atoms[index, atom].tolist()
            residue = f"{THREE_LETTERS[letter]:>3} {chain}{number:>4}{code:1}"
            place = "".join(f"{value:8.3f}" for value in position)
            if len(place) > 24:
                raise UserError("a PDB file holds coordinates from -999 to 9999 Å; move the structure to the origin")
            lines.append(
                f"ATOM  {serial:5d}  {name:<3} {residue}   {place}  1.00{values[index]:6.2f}          {name[0]:>2}"
            )
            serial, last = serial + 1, residue
    lines += [f"TER   {serial:5d}      {last}", "END"]
    return "\n".join(f"{line:<80}" for line in lines) + "\n"


def _split_number(number: str, index: int) -> tuple[str, str]:
    """The number and the insertion code of a residue; one without a number gets its place."""
    if not number:
        return str(index + 1), ""
    return (number[:-1], number[-1]) if number[-1].isalpha() else (number, "")


def _format_sequence(structure: Structure, chain: str) -> list[str]:
    names = [THREE_LETTERS[letter] for letter in structure.sequence]
    rows = [names[start : start + 13] for start in range(0, len(names), 13)]
    return [f"SEQRES {number:3d} {chain} {len(names):4d}  {' '.join(row)}" for number, row in enumerate(rows, 1)]
