"""Losses of folding: zero at the truth, invariant under rigid motions, different for a mirror image."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headwise.models.folding_heads import Prediction
from headwise.models.structure_module import FoldedChain
from headwise.proteins.frames import Frames, rotation_from_quaternion, stack_frames
from headwise.proteins.residues import RESIDUES
from headwise.proteins.rigid_groups import (
    compute_backbone_frames,
    compute_group_frames,
    compute_torsions,
    place_atoms,
    swap_symmetric_atoms,
    to_atom14,
)
from headwise.proteins.structure import Structure
from headwise.tasks.fold_loss import (
    FoldWeights,
    Truth,
    auxiliary_loss,
    choose_names,
    compute_fape,
    fold_losses,
    measure_lddt,
    side_chain_fape,
    torsion_loss,
    weigh_losses,
)
from headwise.tasks.fold_violations import clash_loss, peptide_bond_loss, violation_loss

sys.path.insert(0, str(Path(__file__).parents[1] / "proteins"))
from folding import make_chain, make_features

close = torch.testing.assert_close
LENGTH = 12
ALL = FoldWeights(violation=1.0, aligned_error=0.1, resolved=0.01)


def make_truth(chain: Structure | None = None) -> Truth:
    truth = Truth.of([chain or make_chain(LENGTH)])
    return Truth(truth.residues, truth.atoms.double(), truth.mask)


def predict_truth(truth: Truth, layers: int = 2) -> Prediction:
    """A prediction that is the truth itself, as far as ideal geometry allows; its heads know nothing."""
    backbone = compute_backbone_frames(truth.atoms)
    torsions, _, _ = compute_torsions(truth.atoms, truth.mask, truth.residues)
    torsions = torch.where(torsions.square().sum(-1, keepdim=True) > 0, torsions, torch.tensor([0.0, 1.0]).double())
    frames = compute_group_frames(backbone, torsions, truth.residues)
    stacked = torsions.expand(layers, *torsions.shape)
    length = truth.residues.shape[1]
    chain = FoldedChain(
        torch.zeros(1, length, 4).double(), stack_frames([backbone] * layers), stacked, stacked, frames,
        place_atoms(frames, truth.residues),
    )  # fmt: skip

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(1, *shape, dtype=torch.float64)

    heads = (
        zeros(length, length, 64),
        zeros(4, length, 23),
        zeros(length, 50),
        zeros(length, length, 64),
        zeros(length, 37),
    )
    return Prediction(chain, *heads)


def move(prediction: Prediction, motion: Frames) -> Prediction:
    chain = prediction.chain
    there = chain.atoms.abs().sum(-1, keepdim=True) > 0
    moved = replace(
        chain, backbones=motion.compose(chain.backbones), frames=motion.compose(chain.frames),
        atoms=torch.where(there, motion.apply(chain.atoms), chain.atoms),
    )  # fmt: skip
    return replace(prediction, chain=moved)


def draw_motion() -> Frames:
    return Frames(rotation_from_quaternion(torch.randn(3).double()), 30 * torch.randn(3).double())


def draw_frames(*shape: int) -> Frames:
    return Frames(rotation_from_quaternion(torch.randn(*shape, 3).double()), 5 * torch.randn(*shape, 3).double())


def test_fape_is_the_distance_in_local_coordinates():
    """Algorithm 28, written out for two frames and three points."""
    frames, true_frames, points, true_points = (
        draw_frames(2),
        draw_frames(2),
        torch.randn(3, 3).double(),
        torch.randn(3, 3).double(),
    )
    found = compute_fape(frames, points, true_frames, true_points, eps=1e-12)
    for i in range(2):
        for j in range(3):
            one = frames.rotations[i].T @ (points[j] - frames.translations[i])
            other = true_frames.rotations[i].T @ (true_points[j] - true_frames.translations[i])
            close(found[i, j], min(10.0, float((one - other).norm())) / 10 + found[i, j] * 0)
    far = compute_fape(frames, points + 1000, true_frames, true_points)
    close(far, torch.ones_like(far))


def test_fape_does_not_change_with_a_rigid_motion_and_does_with_a_mirror():
    frames, points, motion = draw_frames(1, 6), 5 * torch.randn(1, 8, 3).double(), draw_motion()
    moved = compute_fape(motion.compose(frames), motion.apply(points), frames, points, eps=1e-12)
    close(moved, torch.zeros_like(moved), atol=1e-6, rtol=0)
    mirror = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    # frames of mirrored points are right-handed again, so local coordinates are mirrored
    n, ca, c = torch.randn(3, 1, 6, 3, dtype=torch.float64)
    frames, mirrored = (Frames.from_three_points(*(x * sign for x in (n, ca, c))) for sign in (mirror * 0 + 1, mirror))
    assert compute_fape(mirrored, points * mirror, frames, points).mean() > 0.1


def test_all_geometric_losses_are_zero_at_the_truth_and_stay_so_when_it_moves():
    truth = make_truth()
    for prediction in (predict_truth(truth), move(predict_truth(truth), draw_motion())):
        # ideal positions have three decimals, so atoms of the truth are met to a few thousandths of an ångström
        assert side_chain_fape(prediction, truth) < 0.003
        assert auxiliary_loss(prediction, truth) < 1e-5
        close(measure_lddt(prediction.chain.backbones.translations[-1], truth), torch.ones(1, LENGTH).double())
    shifted = move(predict_truth(truth), Frames(torch.eye(3).double(), torch.zeros(3).double()))
    worse = replace(shifted.chain, atoms=shifted.chain.atoms + torch.randn_like(shifted.chain.atoms))
    assert side_chain_fape(replace(shifted, chain=worse), truth) > 0.05


def test_a_mirror_image_has_a_loss_though_its_distances_are_right():
    truth = make_truth()
    mirrored = Truth(truth.residues, truth.atoms * torch.tensor([1.0, 1.0, -1.0]).double(), truth.mask)
    prediction = predict_truth(mirrored)
    close(measure_lddt(prediction.chain.backbones.translations[-1], truth), torch.ones(1, LENGTH).double())
    assert auxiliary_loss(prediction, truth) > 0.1 and side_chain_fape(prediction, truth) > 0.1


def test_symmetric_atoms_may_have_either_name():
    """Algorithm 26, and the alternative angles of Algorithm 27."""
    sequence = "DEFYAG"
    residues = torch.tensor([[RESIDUES.index(letter) for letter in sequence]])
    torch.manual_seed(3)
    torsions = torch.nn.functional.normalize(torch.randn(1, 6, 7, 2, dtype=torch.float64), dim=-1)
    frames = compute_group_frames(draw_frames(1, 6), torsions, residues)
    atoms = place_atoms(frames, residues)
    there = atoms.abs().sum(-1) > 0
    there[:, :, 1] = True
    assert not choose_names(atoms, atoms, there, residues).any()
    swapped = swap_symmetric_atoms(atoms, residues)
    assert choose_names(swapped, atoms, there, residues).tolist() == [[True] * 4 + [False] * 2]


def test_torsion_loss_takes_the_better_of_two_names_and_the_length():
    truth = make_truth(make_chain(40))
    prediction = predict_truth(truth)
    close(torsion_loss(prediction, truth), torch.zeros(1).double(), atol=1e-10, rtol=0)
    _, alternative, known = compute_torsions(truth.atoms, truth.mask, truth.residues)
    other = torch.where(known.unsqueeze(-1), alternative, prediction.chain.torsions[0])
    turned = replace(prediction.chain, torsions=other.expand(2, *other.shape))
    close(torsion_loss(replace(prediction, chain=turned), truth), torch.zeros(1).double(), atol=1e-10, rtol=0)
    opposite = replace(prediction.chain, torsions=-other.expand(2, *other.shape))
    assert torsion_loss(replace(prediction, chain=opposite), truth) > 1
    long = replace(prediction.chain, raw_torsions=3 * prediction.chain.raw_torsions)
    close(torsion_loss(replace(prediction, chain=long), truth), torch.full((1,), 0.04).double())  # 0.02 (3 - 1)


def test_losses_of_heads_that_know_nothing_are_uniform():
    features, chains = make_features(LENGTH)
    truth = make_truth(chains[0])
    losses = fold_losses(predict_truth(truth), truth, features, ALL)
    expected = {"distogram": 64, "masked_msa": 23, "lddt": 50, "aligned_error": 64, "resolved": 2}
    for name, classes in expected.items():
        close(losses[name], torch.full((1,), math.log(classes)).double())
    names = (*expected, "fape", "aux", "violation")
    assert set(losses) == set(names)
    assert set(fold_losses(predict_truth(truth), truth, features, FoldWeights())) == set(names) - {
        "aligned_error", "resolved", "violation",
    }  # fmt: skip
    total = weigh_losses({name: torch.ones(2) for name in names}, FoldWeights())
    close(total, torch.full((2,), 0.5 + 0.5 + 0.3 + 2 + 0.01))


def test_padding_and_unknown_atoms_have_no_loss():
    """Random coordinates of residues that are not known, and of padding, change nothing."""
    truth = make_truth()
    mask = truth.mask.clone()
    mask[:, -3:] = False
    prediction = predict_truth(truth)
    features, _ = make_features(LENGTH)
    one = Truth(truth.residues, truth.atoms, mask)
    other = Truth(truth.residues, torch.where(mask.unsqueeze(-1), truth.atoms, 50.0), mask)
    for name, loss in fold_losses(prediction, one, features, ALL).items():
        close(fold_losses(prediction, other, features, ALL)[name], loss, msg=name)


def test_the_lddt_head_learns_what_the_prediction_has():
    truth, (features, _) = make_truth(), make_features(LENGTH)
    prediction = predict_truth(truth)
    sure = torch.zeros(1, LENGTH, 50, dtype=torch.float64)
    sure[..., 49] = 50.0
    good = fold_losses(replace(prediction, lddt=sure), truth, features, FoldWeights())["lddt"]
    close(good, torch.zeros(1).double(), atol=1e-9, rtol=0)
    close(replace(prediction, lddt=sure).plddt, torch.full((1, LENGTH), 99.0).double())
    close(prediction.plddt, torch.full((1, LENGTH), 50.0).double())
    close(prediction.pae, torch.full((1, LENGTH, LENGTH), 16.0).double())


def test_violations_are_of_bonds_and_overlaps():
    """Two residues at ideal distance and angles have none; stretched or overlapping ones what the equations say."""
    atoms, residues = torch.zeros(1, 2, 14, 3, dtype=torch.float64), torch.full((1, 2), RESIDUES.index("G"))
    angle_c, angle_n = math.acos(-0.4473), math.acos(-0.5203)
    c, n = torch.zeros(3).double(), torch.tensor([1.329, 0.0, 0.0]).double()
    atoms[0, 0, 1] = 1.52 * torch.tensor([math.cos(angle_c), math.sin(angle_c), 0])
    atoms[0, 0, 2], atoms[0, 1, 0] = c, n
    atoms[0, 1, 1] = n + 1.46 * torch.tensor([-math.cos(angle_n), -math.sin(angle_n), 0])
    bonded = torch.ones(1, 1, dtype=torch.bool)
    close(peptide_bond_loss(atoms, residues, bonded), torch.zeros(1).double(), atol=1e-9, rtol=0)
    stretched = atoms.clone()
    stretched[0, 1] += torch.tensor([1.0, 0, 0])
    close(peptide_bond_loss(stretched, residues, bonded), torch.full((1,), 1 - 12 * 0.014).double())
    far = torch.arange(2 * 14 * 3, dtype=torch.float64).view(1, 2, 14, 3) * 10
    keep = torch.ones(1, 2, dtype=torch.bool)
    close(clash_loss(far, residues, keep, bonded), torch.zeros(1).double())
    touching = far.clone()
    touching[0, 1, 1] = touching[0, 0, 1] + torch.tensor([1.0, 0.0, 0.0])  # two Cα 1 Å apart: 2 * 1.7 - 1.5 - 1
    close(clash_loss(touching, residues, keep, bonded), torch.full((1,), 0.9 / 8).double())
    bond = far.clone()
    bond[0, 1, 0] = bond[0, 0, 2] + torch.tensor([1.329, 0.0, 0.0])
    close(clash_loss(bond, residues, keep, bonded), torch.zeros(1).double())
    assert clash_loss(bond, residues, keep, ~bonded) > 0
    gap = torch.tensor([[1, 5]])
    assert violation_loss(stretched, residues, gap, keep) < violation_loss(
        stretched, residues, torch.tensor([[1, 2]]), keep
    )


@pytest.mark.parametrize("name", ["fape", "aux", "violation"])
def test_gradients_are_finite_where_everything_is_at_the_origin(name):
    truth, (features, _) = make_truth(), make_features(LENGTH)
    start = torch.zeros(1, LENGTH, 3, dtype=torch.float64, requires_grad=True)
    frames = Frames(torch.eye(3).double().expand(1, LENGTH, 3, 3), start)
    prediction = predict_truth(truth)
    torsions = prediction.chain.torsions
    groups = compute_group_frames(frames, torsions[0], truth.residues)
    chain = FoldedChain(
        prediction.chain.single,
        stack_frames([frames] * 2),
        torsions,
        torsions,
        groups,
        place_atoms(groups, truth.residues),
    )
    losses = fold_losses(replace(prediction, chain=chain), truth, features, FoldWeights(violation=1.0))
    losses[name].sum().backward()
    assert start.grad.isfinite().all() and start.grad.abs().sum() > 0


def test_atom14_of_the_truth_is_what_the_loss_compares():
    truth = make_truth()
    atoms, there = to_atom14(truth.atoms, truth.mask, truth.residues)
    assert there.sum() == truth.mask.sum() and atoms.isfinite().all()
