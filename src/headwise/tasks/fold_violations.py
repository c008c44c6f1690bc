"""Structural violations of a predicted chain (Jumper et al. 2021, supplement, section 1.9.11): broken peptide bonds and
atoms that overlap.

DISCREPANCY: atoms of one residue are not compared. They are placed by ideal bond lengths and angles, and the published
loss takes its bounds for them from a table of bond lengths that is no part of this toolkit.

Letters: B chains, L residues, A = 14 L atoms.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.proteins.frames import normalise
from headwise.proteins.residues import ATOM_INDEX, ATOM_RADII, CLASH_OVERLAP, RESIDUE_INDEX
from headwise.proteins.rigid_groups import get_tables

# C to the next N, in Å: for most residues and before proline
BOND, BOND_DEVIATION = (1.329, 1.341), (0.014, 0.016)
# cosines of the angles Cα-C-N and C-N-Cα at a peptide bond, and their standard deviations
ANGLE_AT_C, ANGLE_AT_N = (-0.4473, 0.0311), (-0.5203, 0.0353)
TOLERANCE = 12.0  # standard deviations that are allowed
N, CA, C = 0, 1, 2  # in atom14
EPSILON = 1e-10


def violation_loss(atoms: Tensor, residues: Tensor, positions: Tensor, keep: Tensor) -> Tensor:
    """Violations of peptide bonds and clashes: atom14 (B, L, 14, 3), residue types, numbers and mask (B, L) -> (B,)."""
    bonded = keep[:, 1:] & keep[:, :-1] & (positions[:, 1:] - positions[:, :-1] == 1)  # (B, L - 1)
    return peptide_bond_loss(atoms, residues, bonded) + clash_loss(atoms, residues, keep, bonded)


def peptide_bond_loss(atoms: Tensor, residues: Tensor, bonded: Tensor) -> Tensor:
    """Deviations of bond lengths and angles beyond 12 standard deviations, averaged over bonds (equations 44, 45)."""
    c, calpha, n, next_calpha = atoms[:, :-1, C], atoms[:, :-1, CA], atoms[:, 1:, N], atoms[:, 1:, CA]
    proline = (residues[:, 1:] == RESIDUE_INDEX["P"]).long()
    ideal, deviation = (c.new_tensor(values)[proline] for values in (BOND, BOND_DEVIATION))
    length = ((n - c).square().sum(-1) + EPSILON).sqrt()
    to_n, to_calpha = normalise(n - c), normalise(calpha - c)
    at_c = (to_calpha * to_n).sum(-1)
    at_n = (-to_n * normalise(next_calpha - n)).sum(-1)
    losses = (
        ((length - ideal).abs() - TOLERANCE * deviation).relu()
        + ((at_c - ANGLE_AT_C[0]).abs() - TOLERANCE * ANGLE_AT_C[1]).relu()
        + ((at_n - ANGLE_AT_N[0]).abs() - TOLERANCE * ANGLE_AT_N[1]).relu()
    )
    return (losses * bonded).sum(1) / bonded.sum(1).clamp(min=1)


def clash_loss(atoms: Tensor, residues: Tensor, keep: Tensor, bonded: Tensor) -> Tensor:
    """Overlaps of atoms of different residues beyond 1.5 Å, summed and divided by the number of atoms (equation 46);
    atoms of a peptide bond, and sulphurs of two cysteines, may touch."""
    tables, length = get_tables(atoms.device, atoms.dtype), atoms.shape[1]
    by_name = atoms.new_tensor(ATOM_RADII)
    there = (tables.mask14[residues] & keep.unsqueeze(-1)).flatten(1)  # (B, A)
    names = tables.atom37[residues].flatten(1)
    radii, points = by_name[names], atoms.flatten(1, 2)
    gaps = points.unsqueeze(1) - points.unsqueeze(2)
    distances = (gaps.square().sum(-1) + EPSILON).sqrt()  # (B, A, A)
    number = torch.arange(length, device=atoms.device).repeat_interleave(atoms.shape[2])  # (A,) residue of each atom
    slot = torch.arange(atoms.shape[2], device=atoms.device).repeat(length)
    later = number.unsqueeze(0) > number.unsqueeze(1)  # each pair once: the second atom is of a later residue
    neighbours = (number.unsqueeze(0) == number.unsqueeze(1) + 1) & (slot == N).unsqueeze(0) & (slot == C).unsqueeze(1)
    joined = torch.nn.functional.pad(bonded, (0, 1))[:, number].unsqueeze(2)  # (B, A, 1)
    sulphur = names == ATOM_INDEX["SG"]
    pairs = later & ~(neighbours & joined) & ~(sulphur.unsqueeze(1) & sulphur.unsqueeze(2))
    pairs = pairs & there.unsqueeze(1) & there.unsqueeze(2)
    overlap = (radii.unsqueeze(1) + radii.unsqueeze(2) - CLASH_OVERLAP - distances).relu()
    return (overlap * pairs).sum((1, 2)) / there.sum(1).clamp(min=1)
