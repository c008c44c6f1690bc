"""Frames and rigid groups beside OpenFold's, as transformers has them."""

import pytest
import torch
from transformers.models.esm.openfold_utils import residue_constants, rigid_utils
from transformers.models.esm.openfold_utils.feats import (
    frames_and_literature_positions_to_atom14_pos,
    torsion_angles_to_frames,
)
from transformers.models.esm.openfold_utils.rigid_utils import Rigid, Rotation

from headwise.proteins.frames import Frames, rotation_from_quaternion
from headwise.proteins.rigid_groups import build_tables, compute_group_frames, place_atoms


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


@pytest.fixture(autouse=True)
def _keep_double(double_rigids):
    """Rotations of OpenFold in float64."""


def draw_frames(*shape: int, seed: int = 0) -> Frames:
    draw = torch.Generator().manual_seed(seed)
    rotations = rotation_from_quaternion(2 * torch.randn(*shape, 3, generator=draw, dtype=torch.float64))
    return Frames(rotations, 5 * torch.randn(*shape, 3, generator=draw, dtype=torch.float64))


def to_rigid(frames: Frames) -> Rigid:
    return Rigid(Rotation(rot_mats=frames.rotations), frames.translations)


def test_frames_compose_and_apply():
    one, other, points = draw_frames(7), draw_frames(7, seed=1), torch.randn(7, 3, dtype=torch.float64)
    close(one.apply(points), to_rigid(one).apply(points))
    close(one.apply_inverse(points), to_rigid(one).invert_apply(points))
    theirs = to_rigid(one).compose(to_rigid(other))
    close(one.compose(other).rotations, theirs.get_rots().get_rot_mats())
    close(one.compose(other).translations, theirs.get_trans())


def test_frames_from_three_points():
    """Algorithm 21."""
    n, ca, c = torch.randn(3, 20, 3, dtype=torch.float64)
    frames, theirs = Frames.from_three_points(n, ca, c), Rigid.make_transform_from_reference(n, ca, c, eps=1e-20)
    close(frames.rotations, theirs.get_rots().get_rot_mats())
    close(frames.translations, theirs.get_trans())


def test_quaternion_updates():
    """Algorithm 23, applied to a rotation that is itself made of quaternions."""
    updates = torch.randn(3, 9, 6, dtype=torch.float64)
    ours = Frames.identity((9,), updates)
    theirs = Rigid.identity((9,), torch.float64, torch.device("cpu"), False, fmt="quat")
    for update in updates:
        ours, theirs = ours.update(update), theirs.compose_q_update_vec(update)
    close(ours.rotations, theirs.get_rots().get_rot_mats())
    close(ours.translations, theirs.get_trans())


def test_constants_of_rigid_groups():
    tables, constants = build_tables(), residue_constants

    def read(name: str) -> torch.Tensor:
        return torch.from_numpy(getattr(constants, name)[:20])

    torch.testing.assert_close(tables.position[:20].float(), read("restype_atom14_rigid_group_positions"))
    assert torch.equal(tables.group[:20], read("restype_atom14_to_rigid_group"))
    assert torch.equal(tables.mask14[:20], read("restype_atom14_mask") > 0)
    assert torch.equal(tables.mask37[:20], read("STANDARD_ATOM_MASK") > 0)
    assert torch.equal(tables.chi_mask[:20], torch.tensor(constants.chi_angles_mask) > 0)
    assert torch.equal(tables.periodic[:20], torch.tensor(constants.chi_pi_periodic[:20]) > 0)
    assert torch.equal(tables.swap14[:20], read("restype_atom14_ambiguous_atoms_swap_idx"))
    used = torch.cat((torch.ones(20, 4, dtype=torch.bool), tables.chi_mask[:20]), 1)
    frames = read("restype_rigid_group_default_frame")[used]
    torch.testing.assert_close(tables.rotation[:20][used].float(), frames[:, :3, :3], atol=1e-6, rtol=0)
    torch.testing.assert_close(tables.translation[:20][used].float(), frames[:, :3, 3], atol=1e-6, rtol=0)


def test_torsions_to_frames_and_atoms():
    """Algorithm 24."""
    backbone, residues, angles = draw_frames(20), torch.arange(20), 7 * torch.rand(20, 7, dtype=torch.float64)
    torsions, tables = torch.stack((angles.sin(), angles.cos()), -1), build_tables()
    default = torch.zeros(21, 8, 4, 4, dtype=torch.float64)
    default[..., :3, :3], default[..., :3, 3], default[..., 3, 3] = tables.rotation, tables.translation, 1.0
    theirs = torsion_angles_to_frames(to_rigid(backbone), torsions, residues, default)
    frames = compute_group_frames(backbone, torsions, residues)
    close(frames.rotations, theirs.get_rots().get_rot_mats())
    close(frames.translations, theirs.get_trans())
    constants = (default, tables.group, tables.mask14.double(), tables.position)
    close(place_atoms(frames, residues), frames_and_literature_positions_to_atom14_pos(theirs, residues, *constants))
    assert rigid_utils.torch.float32 is torch.float64  # else OpenFold rounds, and the tolerance above means nothing
