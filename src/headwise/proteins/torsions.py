"""Backbones and their torsions: ideal bond lengths and angles (Engh and Huber 1991), differentiable in the torsions.

φ turns about N-Cα, ψ about Cα-C, ω about the peptide bond. Frames are AlphaFold's: Cα at the origin, C on the x-axis,
N in the xy-plane.

Letters: L residues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.proteins.residues import ATOMS, CA, CB, C, N, O
from headwise.proteins.structure import Structure

N_CA, CA_C, C_N, C_O = 1.458, 1.525, 1.329, 1.231  # bond lengths, Å
N_CA_C, CA_C_N, C_N_CA, CA_C_O = (math.radians(angle) for angle in (111.0, 117.2, 121.7, 120.1))
LOCAL_N = (N_CA * math.cos(N_CA_C), N_CA * math.sin(N_CA_C), 0.0)
LOCAL_C = (CA_C, 0.0, 0.0)
LOCAL_CB = (-0.529, -0.774, -1.205)  # of L-amino acids
BUILT_ATOMS = (N, CA, C, CB, O)  # in the order of `Backbone.atoms`
TRANS = math.pi  # ω of nearly all peptide bonds


def place_atom(a: Tensor, b: Tensor, c: Tensor, length: float, angle: float, torsion: Tensor) -> Tensor:
    """The atom d at a bond length from c, with the angle b-c-d and the torsion a-b-c-d (NeRF: Parsons et al. 2005);
    points are (..., 3), torsions (...)."""
    along = torch.nn.functional.normalize(c - b, dim=-1)
    normal = torch.nn.functional.normalize(torch.linalg.cross(b - a, along), dim=-1)
    side = torch.linalg.cross(normal, along)
    x = torch.full_like(torsion, -math.cos(angle))
    y, z = math.sin(angle) * torsion.cos(), math.sin(angle) * torsion.sin()
    offset = x.unsqueeze(-1) * along + y.unsqueeze(-1) * side + z.unsqueeze(-1) * normal
    return c + length * offset


def measure_torsion(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """The torsion of four points, (..., 3) -> (...), from -π to π."""
    first, axis, last = b - a, torch.nn.functional.normalize(c - b, dim=-1), d - c
    before, after = torch.linalg.cross(first, axis), torch.linalg.cross(axis, last)
    return torch.atan2((torch.linalg.cross(before, after) * axis).sum(-1), (before * after).sum(-1))


def build_frame(n: Tensor, ca: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The rotation (..., 3, 3), whose columns are the axes, and the origin (..., 3) of a residue's frame, by
    Gram-Schmidt."""
    x = torch.nn.functional.normalize(c - ca, dim=-1)
    y = n - ca
    y = torch.nn.functional.normalize(y - (y * x).sum(-1, keepdim=True) * x, dim=-1)
    return torch.stack([x, y, torch.linalg.cross(x, y)], dim=-1), ca


def build_backbone(phi: Tensor, psi: Tensor, omega: Tensor) -> Tensor:
    """Coordinates of N, Cα, C, Cβ and O, (..., L, 5, 3), from torsions (..., L). `omega` is of the bond after each
    residue; the first φ, and the last ω, turn nothing."""
    n, ca, c, cb = (phi.new_tensor(point).expand(*phi.shape, 3) for point in (LOCAL_N, (0.0,) * 3, LOCAL_C, LOCAL_CB))
    o = place_atom(n, ca, c, C_O, CA_C_O, psi + math.pi)
    next_n = place_atom(n, ca, c, C_N, CA_C_N, psi)
    next_ca = place_atom(ca, c, next_n, N_CA, C_N_CA, omega)
    next_c = place_atom(c, next_n, next_ca, CA_C, N_CA_C, phi.roll(-1, -1))
    rotation, origin = build_frame(next_n, next_ca, next_c)  # of each next residue in the frame of this one
    first = torch.eye(3, dtype=phi.dtype, device=phi.device).expand(*phi.shape[:-1], 1, 3, 3)
    rotation = torch.cat([first, rotation[..., :-1, :, :]], dim=-3)
    origin = torch.cat([torch.zeros_like(origin[..., :1, :]), origin[..., :-1, :]], dim=-2)
    rotation, origin = compose_prefixes(rotation, origin)
    local = torch.stack([n, ca, c, cb, o], dim=-2)  # (..., L, 5, 3)
    return local @ rotation.transpose(-1, -2) + origin.unsqueeze(-2)


def compose_prefixes(rotation: Tensor, translation: Tensor) -> tuple[Tensor, Tensor]:
    """Products of the first 1, 2 ... L rigid motions, (..., L, 3, 3) and (..., L, 3), in log2 L batched steps: a scan,
    so that long chains need no loop over residues."""
    step, length = 1, rotation.shape[-3]
    while step < length:
        before, after = rotation[..., :-step, :, :], rotation[..., step:, :, :]
        moved = (before @ translation[..., step:, :].unsqueeze(-1)).squeeze(-1) + translation[..., :-step, :]
        rotation = torch.cat([rotation[..., :step, :, :], before @ after], dim=-3)
        translation = torch.cat([translation[..., :step, :], moved], dim=-2)
        step *= 2
    return rotation, translation


def to_structure(sequence: str, points: Tensor, chain: str = "A") -> Structure:
    """The structure of a sequence from N, Cα, C, Cβ and O, (L, 5, 3); glycine has no Cβ."""
    atoms = torch.zeros(len(sequence), len(ATOMS), 3)
    mask = torch.zeros(len(sequence), len(ATOMS), dtype=torch.bool)
    atoms[:, list(BUILT_ATOMS)] = points.detach().float().cpu()
    mask[:, list(BUILT_ATOMS)] = True
    glycine = torch.tensor([letter == "G" for letter in sequence])
    mask[glycine, CB] = False
    atoms[glycine, CB] = 0.0
    return Structure(sequence, atoms, mask, chain=chain)


@dataclass(frozen=True, eq=False)
class Torsions:
    """φ, ψ and ω (of the bond after) of each residue, (L, 3), and which are known."""

    angles: Tensor
    known: Tensor


def measure_torsions(structure: Structure) -> Torsions:
    """The backbone torsions of a structure; those of missing atoms and across chain breaks are unknown and zero."""
    atoms, mask = structure.atoms, structure.mask
    n, ca, c = atoms[:, N], atoms[:, CA], atoms[:, C]
    angles, known = atoms.new_zeros(len(structure), 3), mask.new_zeros(len(structure), 3)
    whole = mask[:, [N, CA, C]].all(-1)
    bonded = torch.ones_like(whole[1:])
    bonded[list(structure.find_breaks())] = False
    bonded &= whole[1:] & whole[:-1]
    angles[1:, 0] = measure_torsion(c[:-1], n[1:], ca[1:], c[1:])
    angles[:-1, 1] = measure_torsion(n[:-1], ca[:-1], c[:-1], n[1:])
    angles[:-1, 2] = measure_torsion(ca[:-1], c[:-1], n[1:], ca[1:])
    known[1:, 0], known[:-1, 1], known[:-1, 2] = bonded, bonded, bonded
    return Torsions(torch.where(known, angles, 0.0), known)
