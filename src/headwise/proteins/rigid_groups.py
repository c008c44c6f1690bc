"""Rigid groups of residues: ideal atom positions, and the way from torsion angles to atoms and back.

A residue has eight groups of atoms that move as one: backbone, pre-omega, phi, psi, chi1 to chi4. The frames of all
follow from the backbone frame and seven torsion angles, atoms from ideal positions in their group's frame (Jumper et
al. 2021, supplement, Algorithms 24 and 25, table 2). `rigid_groups.tsv` has the ideal positions that AlphaFold was
published with. Angles are (sin, cos).

`atom14` holds the atoms of a residue in the order of that file, `atom37` those of all residues (`residues.ATOMS`).
An unknown residue (X) has the atoms of alanine; AlphaFold gives it none.

Letters: L residues.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any

import torch
from torch import Tensor

from headwise.proteins.frames import Frames, normalise, rotation_about_x, stack_frames
from headwise.proteins.residues import (
    ATOM_INDEX,
    ATOMS,
    CA,
    CB,
    CHI_ATOMS,
    CHI_PERIODIC,
    RESIDUE_INDEX,
    RESIDUE_TYPES,
    UNKNOWN,
    C,
    N,
)

GROUPS, TORSIONS, MAX_ATOMS = 8, 7, 14
PSI_GROUP, FIRST_CHI = 3, 4
# Pairs of atoms that chemistry does not distinguish, so that their names are a matter of choice.
SYMMETRIC_ATOMS = {
    "D": (("OD1", "OD2"),),
    "E": (("OE1", "OE2"),),
    "F": (("CD1", "CD2"), ("CE1", "CE2")),
    "Y": (("CD1", "CD2"), ("CE1", "CE2")),
}
Atom = tuple[str, int, tuple[float, float, float]]  # name, group, position in the frame of the group


@cache
def read_ideal_atoms() -> dict[str, tuple[Atom, ...]]:
    """The atoms of each residue type with their group and position, in Å."""
    text = resources.files("headwise.proteins").joinpath("rigid_groups.tsv").read_text("utf-8")
    atoms: dict[str, tuple[Atom, ...]] = {}
    for line in text.splitlines()[1:]:
        residue, name, group, x, y, z = line.split("\t")
        atoms[residue] = (*atoms.get(residue, ()), (name, int(group), (float(x), float(y), float(z))))
    atoms[UNKNOWN] = atoms["A"]
    return atoms


@dataclass(frozen=True)
class Tables:
    """Constants by residue type, K = 21."""

    atom37: Tensor  # (K, 14) index in atom37 of each atom of atom14
    atom14: Tensor  # (K, 37) index in atom14 of each atom of atom37
    mask14: Tensor  # (K, 14) which atoms there are
    mask37: Tensor  # (K, 37)
    group: Tensor  # (K, 14) group of each atom
    position: Tensor  # (K, 14, 3) ideal position in the frame of the group
    rotation: Tensor  # (K, 8, 3, 3) frame of a group in the one before it, at torsion angle 0
    translation: Tensor  # (K, 8, 3)
    group_atoms: Tensor  # (K, 8, 3) atoms that define a group's frame, in atom37
    group_mask: Tensor  # (K, 8) groups that have such atoms
    chi_atoms: Tensor  # (K, 4, 4) in atom37
    chi_mask: Tensor  # (K, 4)
    periodic: Tensor  # (K, 4) chi angles that a half turn leaves as they are
    swap14: Tensor  # (K, 14) index of each atom's symmetric partner, else its own

    def to(self, device: torch.device, dtype: torch.dtype) -> Tables:
        cast = {name: getattr(self, name) for name in ("position", "rotation", "translation")}
        moved: dict[str, Any] = {field.name: getattr(self, field.name).to(device) for field in fields(self)}
        return replace(self, **(moved | {name: tensor.to(device, dtype) for name, tensor in cast.items()}))


@cache
def get_tables(device: torch.device, dtype: torch.dtype = torch.float32) -> Tables:
    """The constants on a device, with floats of this type."""
    with torch.device("cpu"):  # whatever the default device is, such as meta
        return build_tables().to(device, dtype)


def build_tables() -> Tables:
    """Constants of all residue types, in float64."""
    count = len(RESIDUE_TYPES)
    tables = Tables(
        atom37=torch.zeros(count, MAX_ATOMS, dtype=torch.long),
        atom14=torch.zeros(count, len(ATOMS), dtype=torch.long),
        mask14=torch.zeros(count, MAX_ATOMS, dtype=torch.bool),
        mask37=torch.zeros(count, len(ATOMS), dtype=torch.bool),
        group=torch.zeros(count, MAX_ATOMS, dtype=torch.long),
        position=torch.zeros(count, MAX_ATOMS, 3, dtype=torch.float64),
        rotation=torch.eye(3, dtype=torch.float64).repeat(count, GROUPS, 1, 1),
        translation=torch.zeros(count, GROUPS, 3, dtype=torch.float64),
        group_atoms=torch.zeros(count, GROUPS, 3, dtype=torch.long),
        group_mask=torch.zeros(count, GROUPS, dtype=torch.bool),
        chi_atoms=torch.zeros(count, 4, 4, dtype=torch.long),
        chi_mask=torch.zeros(count, 4, dtype=torch.bool),
        periodic=torch.zeros(count, 4, dtype=torch.bool),
        swap14=torch.arange(MAX_ATOMS).repeat(count, 1),
    )
    for letter, index in RESIDUE_INDEX.items():
        _fill_atoms(tables, letter, index)
        _fill_groups(tables, letter, index)
    return tables


def _fill_atoms(tables: Tables, letter: str, index: int) -> None:
    names = [name for name, _, _ in read_ideal_atoms()[letter]]
    for slot, (name, group, position) in enumerate(read_ideal_atoms()[letter]):
        tables.atom37[index, slot], tables.atom14[index, ATOM_INDEX[name]] = ATOM_INDEX[name], slot
        tables.mask14[index, slot] = tables.mask37[index, ATOM_INDEX[name]] = True
        tables.group[index, slot] = group
        tables.position[index, slot] = torch.tensor(position, dtype=torch.float64)
    for one, other in SYMMETRIC_ATOMS.get(letter, ()):
        slots = [names.index(one), names.index(other)]
        tables.swap14[index, slots] = torch.tensor(slots[::-1])


def _fill_groups(tables: Tables, letter: str, index: int) -> None:
    """Frames of groups at torsion angle 0: the x axis is the axis of the torsion, its end the origin."""
    position = {name: torch.tensor(xyz, dtype=torch.float64) for name, _, xyz in read_ideal_atoms()[letter]}
    n, ca, c = position["N"], position["CA"], position["C"]
    x = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    frames = {2: (n - ca, x, n), PSI_GROUP: (c - ca, ca - n, c)}  # x axis, direction in the xy plane, origin
    names: dict[int, tuple[str, ...]] = {0: ("C", "CA", "N"), PSI_GROUP: ("CA", "C", "O")}
    for number, chi in enumerate(CHI_ATOMS[letter]):
        end = position[chi[2]]
        # The axis of chi1 starts at CA; that of every later one starts at the origin of the frame before it.
        frames[FIRST_CHI + number] = (end - ca, n - ca, end) if number == 0 else (end, -x, end)
        names[FIRST_CHI + number] = chi[1:]
        tables.chi_atoms[index, number] = torch.tensor([ATOM_INDEX[name] for name in chi])
        tables.chi_mask[index, number] = True
        tables.periodic[index, number] = number in CHI_PERIODIC.get(letter, ())
    for group, (axis, plane, origin) in frames.items():
        frame = Frames.from_three_points(origin + plane, origin, origin + axis)
        tables.rotation[index, group], tables.translation[index, group] = frame.rotations, frame.translations
    for group, three in names.items():
        tables.group_atoms[index, group] = torch.tensor([ATOM_INDEX[name] for name in three])
        tables.group_mask[index, group] = True


def compute_group_frames(backbone: Frames, torsions: Tensor, residues: Tensor) -> Frames:
    """Algorithm 24 (computeAllAtomCoordinates), lines 1-10: backbone frames (..., L), torsion angles (..., L, 7, 2) and
    residue types (..., L) -> frames of all groups (..., L, 8)."""
    tables = get_tables(torsions.device, torsions.dtype)
    still = torsions.new_tensor([0.0, 1.0]).expand(*torsions.shape[:-2], 1, 2)
    turned = rotation_about_x(torch.cat((still, torsions), dim=-2))  # (..., L, 8, 3, 3)
    local = Frames(tables.rotation[residues] @ turned, tables.translation[residues])  # (..., L, 8)
    frames = [local[..., group] for group in range(GROUPS)]
    for group in range(FIRST_CHI + 1, GROUPS):
        frames[group] = frames[group - 1].compose(frames[group])
    return backbone.unsqueeze(-1).compose(stack_frames(frames, dim=-1))


def place_atoms(frames: Frames, residues: Tensor) -> Tensor:
    """Algorithm 24, line 11: ideal atoms in the frames of their groups, (..., L, 8) -> (..., L, 14, 3); zeros where a
    residue has no such atom."""
    tables = get_tables(frames.translations.device, frames.translations.dtype)
    group = tables.group[residues]  # (..., L, 14)
    rotations = frames.rotations.gather(-3, group[..., None, None].expand(*group.shape, 3, 3))
    translations = frames.translations.gather(-2, group[..., None].expand(*group.shape, 3))
    atoms = Frames(rotations, translations).apply(tables.position[residues])
    return atoms * tables.mask14[residues].unsqueeze(-1)


def to_atom37(atoms: Tensor, residues: Tensor) -> tuple[Tensor, Tensor]:
    """atom14 (..., L, 14, 3) -> atom37 (..., L, 37, 3) and its mask."""
    tables = get_tables(atoms.device, atoms.dtype)
    index, mask = tables.atom14[residues], tables.mask37[residues]
    return atoms.gather(-2, index.unsqueeze(-1).expand(*index.shape, 3)) * mask.unsqueeze(-1), mask


def to_atom14(atoms: Tensor, mask: Tensor, residues: Tensor) -> tuple[Tensor, Tensor]:
    """atom37 (..., L, 37, 3) with its mask -> atom14 (..., L, 14, 3) and its mask."""
    tables = get_tables(atoms.device, atoms.dtype)
    index = tables.atom37[residues]
    there = mask.gather(-1, index) & tables.mask14[residues]
    return atoms.gather(-2, index.unsqueeze(-1).expand(*index.shape, 3)) * there.unsqueeze(-1), there


def swap_symmetric_atoms(atoms: Tensor, residues: Tensor) -> Tensor:
    """atom14 (..., L, 14, K) with the names of symmetric atoms exchanged."""
    index = get_tables(atoms.device).swap14[residues]
    return atoms.gather(-2, index.unsqueeze(-1).expand_as(atoms))


def compute_backbone_frames(atoms: Tensor) -> Frames:
    """The backbone frames of residues, (..., L), from atom37 (..., L, 37, 3)."""
    return Frames.from_three_points(atoms[..., N, :], atoms[..., CA, :], atoms[..., C, :])


def find_group_frames(atoms: Tensor, mask: Tensor, residues: Tensor) -> tuple[Frames, Frames, Tensor]:
    """The frames of groups in a structure, from the atoms themselves: (..., L, 8), the same with symmetric atoms
    exchanged, and which of them are known."""
    tables = get_tables(atoms.device, atoms.dtype)
    index = tables.group_atoms[residues]  # (..., L, 8, 3)
    flat = index.flatten(-2)  # (..., L, 24)
    points = atoms.gather(-2, flat.unsqueeze(-1).expand(*flat.shape, 3)).unflatten(-2, (GROUPS, 3))
    known = mask.gather(-1, flat).unflatten(-1, (GROUPS, 3)).all(-1) & tables.group_mask[residues]
    start, origin, plane = points.unbind(-2)
    frames = Frames.from_three_points(plane, origin, 2 * origin - start)
    # The backbone's x axis points to C, from which the others point away.
    flip = atoms.new_ones(GROUPS, 3)
    flip[0] = atoms.new_tensor([-1.0, 1.0, -1.0])
    frames = Frames(frames.rotations * flip.unsqueeze(-2), frames.translations)
    half_turn = torch.where(
        _pad_groups(tables.periodic[residues]).unsqueeze(-1), atoms.new_tensor([1.0, -1.0, -1.0]), atoms.new_ones(3)
    )
    return frames, Frames(frames.rotations * half_turn.unsqueeze(-2), frames.translations), known


def _pad_groups(chi: Tensor) -> Tensor:
    """(..., 4) of chi angles -> (..., 8) of groups, False before."""
    return torch.nn.functional.pad(chi, (FIRST_CHI, 0))


def compute_torsions(atoms: Tensor, mask: Tensor, residues: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Torsion angles omega before the residue, phi, psi and chi1 to chi4 of atom37 (..., L, 37, 3): (..., L, 7, 2), the
    same with symmetric atoms exchanged, and which of them are known, (..., L, 7). Unknown ones are (0, 0)."""
    tables = get_tables(atoms.device, atoms.dtype)
    before, before_mask = atoms.roll(1, -3), mask.roll(1, -2)
    first = torch.arange(atoms.shape[-3], device=atoms.device) == 0
    before_mask = before_mask & ~first.unsqueeze(-1)
    everything = torch.cat((atoms, before), dim=-2)  # (..., L, 74, 3): this residue and the one before it
    known = torch.cat((mask, before_mask), dim=-1)
    last, oxygen = len(ATOMS), ATOM_INDEX["O"]
    backbone = torch.tensor(
        [[last + CA, last + C, N, CA], [last + C, N, CA, C], [N, CA, C, oxygen]], device=atoms.device
    )
    index = torch.cat((backbone.expand(*residues.shape, 3, 4), tables.chi_atoms[residues]), dim=-2).flatten(-2)
    points = everything.gather(-2, index.unsqueeze(-1).expand(*index.shape, 3)).unflatten(-2, (TORSIONS, 4))
    known = known.gather(-1, index).unflatten(-1, (TORSIONS, 4)).all(-1)
    known = known & torch.cat((torch.ones_like(known[..., :3]), tables.chi_mask[residues]), dim=-1)
    angles = measure_torsions(*points.unbind(-2))
    sign = atoms.new_ones(TORSIONS, 1)
    sign[2] = -1.0  # the oxygen is opposite to the next residue's nitrogen, by which psi is defined
    angles = angles * sign * known.unsqueeze(-1)
    half_turn = torch.where(_pad_groups(tables.periodic[residues])[..., 1:].unsqueeze(-1), -1.0, 1.0)
    return angles, angles * half_turn, known


def measure_torsions(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """The torsion angle of four points about the axis from b to c, as (sin, cos): 4 x (..., 3) -> (..., 2)."""
    local = Frames.from_three_points(a, c, 2 * c - b).apply_inverse(d)
    angle = torch.stack((local[..., 2], local[..., 1]), dim=-1)
    return normalise(angle)


def get_beta(atoms: Tensor, residues: Tensor) -> Tensor:
    """Cβ of each residue, Cα of glycine, from atom37 (or its mask): (..., L, 37, K) -> (..., L, K)."""
    glycine = (residues == RESIDUE_INDEX["G"]).unsqueeze(-1)
    return torch.where(glycine, atoms[..., CA, :], atoms[..., CB, :])
