"""Torsion angles to atoms and back, against closed forms; `tests/parity/test_openfold.py` has OpenFold's."""

import math

import pytest
import torch

from headwise.proteins.frames import Frames, rotation_from_quaternion
from headwise.proteins.residues import ATOMS, RESIDUE_ATOMS, RESIDUES
from headwise.proteins.rigid_groups import (
    build_tables,
    compute_backbone_frames,
    compute_group_frames,
    compute_torsions,
    find_group_frames,
    get_beta,
    measure_torsions,
    place_atoms,
    read_ideal_atoms,
    swap_symmetric_atoms,
    to_atom14,
    to_atom37,
)

close = torch.testing.assert_close


def draw_residues(length: int = 20, seed: int = 0) -> tuple[Frames, torch.Tensor, torch.Tensor]:
    """Random backbone frames, torsion angles and residue types, every type at least once in 20."""
    draw = torch.Generator().manual_seed(seed)
    rotations = rotation_from_quaternion(torch.randn(length, 3, generator=draw, dtype=torch.float64))
    angles = 2 * math.pi * torch.rand(length, 7, generator=draw, dtype=torch.float64)
    frames = Frames(rotations, 10 * torch.randn(length, 3, generator=draw, dtype=torch.float64))
    return frames, torch.stack((angles.sin(), angles.cos()), -1), torch.arange(length) % 20


def test_the_table_has_the_atoms_of_every_residue():
    for letter in RESIDUES:
        assert {name for name, _, _ in read_ideal_atoms()[letter]} == set(RESIDUE_ATOMS[letter])


def test_torsions_of_placed_atoms_are_those_they_were_placed_by():
    """Ideal positions have three decimals, so planes are met to a few thousandths."""
    backbone, torsions, residues = draw_residues()
    atoms, mask = to_atom37(place_atoms(compute_group_frames(backbone, torsions, residues), residues), residues)
    angles, alternative, known = compute_torsions(atoms, mask, residues)
    close(angles[:, 2:][known[:, 2:]], torsions[:, 2:][known[:, 2:]], atol=0.01, rtol=0)  # psi and chi
    assert (
        torch.equal(known[:, 3:], build_tables().chi_mask[residues]) and not known[0, :2].any() and known[1:, :3].all()
    )
    periodic = build_tables().periodic[residues] & known[:, 3:]
    close(alternative[:, 3:][periodic], -angles[:, 3:][periodic])
    close(alternative[:, 3:][~periodic], angles[:, 3:][~periodic])


def test_frames_found_from_atoms_are_those_they_were_placed_by():
    backbone, torsions, residues = draw_residues()
    frames = compute_group_frames(backbone, torsions, residues)
    atoms, mask = to_atom37(place_atoms(frames, residues), residues)
    found, alternative, known = find_group_frames(atoms, mask, residues)
    assert torch.equal(known, build_tables().group_mask[residues]) and not known[:, 1:3].any() and known[:, 3].all()
    close(found.rotations[known], frames.rotations[known], atol=0.01, rtol=0)
    close(found.translations[known], frames.translations[known], atol=0.005, rtol=0)
    close(compute_backbone_frames(atoms).rotations, backbone.rotations, atol=1e-6, rtol=0)
    changed = (found.rotations - alternative.rotations).abs().amax((-1, -2)) > 0.1
    assert torch.equal(changed[:, 4:] & known[:, 4:], build_tables().periodic[residues] & known[:, 4:])


def test_a_torsion_is_the_angle_of_two_planes():
    """Against the textbook formula with arctan2; a rigid motion keeps it, a mirror turns its sign."""
    a, b, c, d = torch.randn(4, 30, 3, dtype=torch.float64)
    one, two = torch.linalg.cross(b - a, c - b), torch.linalg.cross(c - b, d - c)
    axis = (c - b) / (c - b).norm(dim=-1, keepdim=True)
    expected = torch.atan2((torch.linalg.cross(one, two) * axis).sum(-1), (one * two).sum(-1))
    sin, cos = measure_torsions(a, b, c, d).unbind(-1)
    close(torch.atan2(sin, cos), expected)
    mirror = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    mirrored = measure_torsions(a * mirror, b * mirror, c * mirror, d * mirror)
    close(mirrored, torch.stack((-sin, cos), -1))


def test_atom14_and_atom37_hold_the_same_atoms():
    backbone, torsions, residues = draw_residues()
    atoms = place_atoms(compute_group_frames(backbone, torsions, residues), residues)
    wide, mask = to_atom37(atoms, residues)
    narrow, there = to_atom14(wide, mask, residues)
    close(narrow, atoms)
    assert torch.equal(there, build_tables().mask14[residues])
    close(get_beta(wide, residues)[0], wide[0, ATOMS.index("CB")])
    glycine = RESIDUES.index("G")
    close(get_beta(wide, residues)[glycine], wide[glycine, ATOMS.index("CA")])


@pytest.mark.parametrize("letter", "DEFY")
def test_half_a_turn_of_a_symmetric_group_exchanges_its_atoms(letter):
    """Rings and carboxyl groups are met to the few thousandths of an ångström by which their table is not symmetric."""
    residues = torch.tensor([RESIDUES.index(letter)])
    backbone, torsions, _ = draw_residues(1)
    number = {"D": 4, "E": 5, "F": 4, "Y": 4}[letter]  # of the torsion: chi2 or chi3
    turned = torsions.clone()
    turned[:, number] *= -1
    atoms = place_atoms(compute_group_frames(backbone, torsions, residues), residues)
    other = place_atoms(compute_group_frames(backbone, turned, residues), residues)
    assert (atoms - other).abs().max() > 1
    close(swap_symmetric_atoms(other, residues), atoms, atol=0.05, rtol=0)
