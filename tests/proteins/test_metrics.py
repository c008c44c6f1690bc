"""Metrics of structures: closed forms, and biotite's lDDT and TM-score."""

from dataclasses import replace

import biotite.structure as biotite
import biotite.structure.io.pdb as biotite_pdb
import pytest
import torch

from headwise.errors import UserError
from headwise.proteins.chains import ChainSettings, generate_chain
from headwise.proteins.metrics import (
    GDT_HA,
    compare_structures,
    compute_contact_precision,
    compute_drmsd,
    compute_gdt,
    compute_lddt,
    compute_mean_lddt,
    compute_rmsd,
    compute_tm_scale,
    compute_tm_score,
    count_clashes,
)
from headwise.proteins.readers.pdb_writer import write_pdb
from headwise.proteins.superposition import superimpose

SETTINGS = ChainSettings(min_length=40, max_length=40, rows=2, rounds=4, candidates=8)


@pytest.fixture(scope="module")
def chain():
    return generate_chain(2, settings=SETTINGS).structure


def disturb(chain, size):
    noise = size * torch.randn(chain.atoms.shape, generator=torch.Generator().manual_seed(1))
    return replace(chain, atoms=chain.atoms + noise * chain.mask.unsqueeze(-1))


def turn(points):
    angle = torch.tensor(0.7)
    rotation = torch.tensor([[angle.cos(), -angle.sin(), 0], [angle.sin(), angle.cos(), 0], [0, 0, 1]])
    return points @ rotation.T + torch.tensor([3.0, -2.0, 5.0])


@pytest.mark.parametrize("size", [0.2, 0.8, 3.0])
def test_lddt_and_tm_score_are_biotites(chain, tmp_path, size):
    paths = [write_pdb(tmp_path / f"{n}.pdb", each) for n, each in enumerate((disturb(chain, size), chain))]
    predicted, true = (biotite_pdb.PDBFile.read(path).get_structure(model=1) for path in paths)
    rows, _ = chain.mask.nonzero(as_tuple=True)
    points = torch.tensor(predicted.coord), torch.tensor(true.coord)
    assert compute_mean_lddt(*points, rows) == pytest.approx(biotite.lddt(true, predicted), abs=1e-4)
    by_residue = biotite.lddt(true, predicted, aggregation="residue")
    torch.testing.assert_close(
        compute_lddt(*points, rows), torch.tensor(by_residue), atol=2e-3, rtol=0, check_dtype=False
    )
    alpha = true.atom_name == "CA"
    here, there = points[0][alpha], points[1][alpha]
    moved = superimpose(here, there, torch.ones(len(here))).apply(here)
    moved_all = predicted[alpha].copy()
    moved_all.coord = moved.numpy()
    index = range(len(here))
    fixed = biotite.tm_score(true[alpha], moved_all, list(index), list(index), reference_length=len(here))
    assert compute_tm_score(here, there) >= fixed - 1e-4  # the best superposition is at least as good as Kabsch's
    assert compute_tm_score(here, there) == pytest.approx(fixed, abs=0.03)
    assert compute_rmsd(here, there) == pytest.approx(biotite.rmsd(true[alpha], moved_all), abs=1e-3)


def test_a_rigid_motion_changes_nothing(chain):
    scores = compare_structures(replace(chain, atoms=turn(chain.atoms)), chain)
    assert [scores[name] for name in ("lDDT", "lDDT-Cα", "TM-score", "GDT-TS")] == pytest.approx([1] * 4, abs=1e-4)
    assert scores["RMSD"] == pytest.approx(0, abs=1e-3) and scores["dRMSD"] == pytest.approx(0, abs=1e-3)


def test_a_mirror_image_is_seen_by_superposition_alone(chain):
    mirrored = chain.atoms * torch.tensor([1.0, 1.0, -1.0])
    alpha = mirrored[:, 1], chain.atoms[:, 1]
    assert compute_drmsd(*alpha) == pytest.approx(0, abs=1e-4)
    assert compute_rmsd(*alpha) > 1 and compute_tm_score(*alpha) < 0.9


def test_half_of_a_chain_that_is_far_away_scores_a_half():
    """40 residues on a line, the second half moved off by 100 Å: every metric has a closed form."""
    true = torch.zeros(40, 3)
    true[:, 0] = 3.8 * torch.arange(40)
    true[:, 1] = torch.tensor([0.0, 1.5] * 20)
    predicted = true.clone()
    predicted[20:, 2] += 100
    assert compute_gdt(predicted, true) == pytest.approx(0.5, abs=1e-6)
    assert compute_gdt(predicted, true, GDT_HA) == pytest.approx(0.5, abs=1e-6)
    scale = compute_tm_scale(40)
    assert compute_tm_score(predicted, true) == pytest.approx(0.5 + 0.5 / (1 + (100 / scale) ** 2), abs=2e-3)
    inside = torch.cdist(true, true) < 15
    lost = inside[:20, 20:].sum() * 2
    pairs = inside.sum() - 40
    assert compute_mean_lddt(predicted, true, torch.arange(40)) == pytest.approx(float(1 - lost / pairs), abs=1e-6)


def test_a_distance_that_changes_by_one_angstrom_counts_for_half():
    true = torch.tensor([[0.0, 0, 0], [10.0, 0, 0]])
    for change, expected in ((0.4, 1.0), (0.9, 0.75), (1.5, 0.5), (3.0, 0.25), (5.0, 0.0)):
        predicted = true + torch.tensor([[0.0, 0, 0], [change, 0, 0]])
        assert compute_mean_lddt(predicted, true, torch.arange(2)) == expected
        assert compute_drmsd(predicted, true) == pytest.approx(change, rel=1e-5)


def test_contact_precision_of_the_best_pairs():
    length = 30
    contacts = torch.zeros(length, length, dtype=torch.bool)
    scores = torch.zeros(length, length)
    pairs = [(0, 24), (1, 25), (2, 26), (0, 25), (3, 29), (4, 28)]
    for rank, (row, column) in enumerate(pairs):
        scores[row, column] = 1 - rank / 10
        contacts[row, column] = rank % 2 == 0
    known = torch.ones_like(contacts)
    assert compute_contact_precision(scores, contacts, known) == {"L/5": 0.5, "L/2": pytest.approx(3 / 15), "L": 3 / 21}
    scores[3, 10] = 9.0  # of medium range
    assert compute_contact_precision(scores, contacts, known)["L/5"] == 0.5
    known[0, 24] = False
    assert compute_contact_precision(scores, contacts, known)["L/5"] == pytest.approx(2 / 6)


def test_clashes_are_pairs_of_atoms_and_bonds_are_none(chain):
    assert count_clashes(chain) <= 2
    squeezed = replace(chain, atoms=chain.atoms * 0.4)
    assert count_clashes(squeezed) > 100


def test_different_sequences_are_refused(chain):
    other = replace(chain, sequence="A" * len(chain))
    with pytest.raises(UserError, match="have different sequences; compare structures of one sequence"):
        compare_structures(other, chain)
    empty = replace(chain, mask=torch.zeros_like(chain.mask))
    with pytest.raises(UserError, match="fewer than three residues"):
        compare_structures(empty, chain)
