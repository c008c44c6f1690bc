"""Generated chains: ideal geometry, torsions that give the coordinates, columns that co-vary at contacts."""

import biotite.structure as biotite
import numpy as np
import pytest
import torch

from headwise.proteins import torsions
from headwise.proteins.chain_sets import ChainsConfig, GeneratedChains
from headwise.proteins.chains import ChainSettings, generate_chain
from headwise.proteins.metrics import compute_contact_precision, count_clashes, find_contacts
from headwise.proteins.pair_features import build_pair_features, compute_covariances, correct_average_product
from headwise.proteins.residues import CA, CB, C, N
from headwise.proteins.torsions import build_backbone, measure_torsion, measure_torsions

SETTINGS = ChainSettings(min_length=40, max_length=44, rows=192, rounds=8, candidates=16)


@pytest.fixture(scope="module")
def chains():
    return [generate_chain(family, settings=SETTINGS) for family in range(3)]


def difference(a, b):
    return (a - b + torch.pi) % (2 * torch.pi) - torch.pi


def test_backbones_have_ideal_bonds_and_angles(chains):
    for chain in chains:
        atoms = chain.structure.atoms.double()
        n, ca, c = atoms[:, N], atoms[:, CA], atoms[:, C]
        assert (ca - n).norm(dim=-1).sub(torsions.N_CA).abs().max() < 1e-3
        assert (c - ca).norm(dim=-1).sub(torsions.CA_C).abs().max() < 1e-3
        assert (n[1:] - c[:-1]).norm(dim=-1).sub(torsions.C_N).abs().max() < 1e-3
        assert (ca[1:] - ca[:-1]).norm(dim=-1).sub(3.80).abs().max() < 0.02  # of a trans peptide bond
        bond = torch.nn.functional.cosine_similarity(ca[:-1] - c[:-1], n[1:] - c[:-1], dim=-1).acos()
        assert (bond - torsions.CA_C_N).abs().max() < 1e-3
        assert chain.structure.find_breaks() == () and count_clashes(chain.structure) < len(chain.structure) / 4


def test_amino_acids_are_left_handed(chains):
    """Seen from Cα with C, N and Cβ as in L-amino acids, the triple product has one sign."""
    structure = chains[0].structure
    has_beta = structure.mask[:, CB]
    n, c, cb = (structure.atoms[has_beta, atom] - structure.atoms[has_beta, CA] for atom in (N, C, CB))
    assert ((torch.linalg.cross(n, c) * cb).sum(-1) > 0).all()


def test_measured_torsions_are_those_it_was_built_from(chains):
    for chain in chains:
        found = measure_torsions(chain.structure)
        assert difference(found.angles, chain.torsions)[found.known].abs().max() < 1e-3
        assert found.known.sum() == 3 * (len(chain.structure) - 1)


def test_torsions_are_biotites():
    random = torch.Generator().manual_seed(0)
    points = torch.randn(4, 7, 3, generator=random, dtype=torch.double)
    expected = biotite.dihedral(*points.numpy())
    np.testing.assert_allclose(measure_torsion(*points).numpy(), expected, atol=1e-5)  # biotite computes in 32 bits


def test_a_backbone_is_differentiable_and_batched():
    random = torch.Generator().manual_seed(0)
    angles = torch.randn(3, 2, 9, generator=random, dtype=torch.double)
    backbone = build_backbone(*angles)
    assert backbone.shape == (2, 9, 5, 3)
    torch.testing.assert_close(backbone[1], build_backbone(*angles[:, 1]))
    small = angles[:, 0, :4].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda values: build_backbone(*values), (small,))


def test_columns_covary_at_contacts(chains):
    """The norm of covariances finds contacts far more often than chance; without couplings it does not."""
    precisions, shares = [], []
    for chain in chains:
        contacts, known = find_contacts(chain.structure)
        norms = compute_covariances(chain.alignment)[..., :-1, :-1].square().sum((-1, -2)).sqrt()
        scores = correct_average_product(norms)
        precisions.append(compute_contact_precision(scores, contacts, known, "all")["L/5"])
        apart = torch.ones_like(contacts).triu(6)
        shares.append(contacts[apart].float().mean().item())
    assert np.mean(precisions) > 0.4 and np.mean(precisions) > 4 * np.mean(shares)
    loose = generate_chain(0, settings=ChainSettings(**{**vars_of(SETTINGS), "coupling": 0.0}))
    contacts, known = find_contacts(loose.structure)
    norms = compute_covariances(loose.alignment)[..., :-1, :-1].square().sum((-1, -2)).sqrt()
    assert compute_contact_precision(correct_average_product(norms), contacts, known, "all")["L/5"] < 0.4


def vars_of(settings):
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def test_covariances_are_numpys(chains):
    alignment = chains[0].alignment
    one_hot = np.eye(22)[alignment.rows[:, [3, 17]].numpy()]  # (N, 2, 22)
    expected = np.cov(one_hot[:, 0].T, one_hot[:, 1].T, bias=True)[:22, 22:]
    np.testing.assert_allclose(compute_covariances(alignment)[3, 17].numpy(), expected, atol=1e-5)


def test_equal_numbers_give_equal_chains_and_families_differ():
    settings = ChainSettings(min_length=24, max_length=24, rows=4, rounds=2, candidates=4)
    first, again, other, sibling = (
        generate_chain(family, member, settings) for family, member in ((5, 0), (5, 0), (6, 0), (5, 1))
    )
    assert torch.equal(first.structure.atoms, again.structure.atoms)
    assert torch.equal(first.alignment.rows, again.alignment.rows)
    assert first.structure.sequence != sibling.structure.sequence
    assert torch.equal(first.torsions, sibling.torsions) and not torch.equal(first.torsions, other.torsions)


def test_families_are_held_out():
    split = ChainsConfig(families=5, members=2, valid_families=2, test_families=3).load()
    parts = (split.train, split.valid, split.test)
    families = [{family for family, _ in part.numbers} for part in parts]
    assert [len(part) for part in parts] == [10, 2, 3]
    assert not (families[0] & families[1] or families[0] & families[2] or families[1] & families[2])
    assert parts[0].take([1, 0]) == GeneratedChains((parts[0].numbers[1], parts[0].numbers[0]), parts[0].settings)


def test_features_of_pairs(chains):
    features = build_pair_features(chains[0].alignment)
    length = chains[0].alignment.length
    assert features.shape == (90, length, length)
    assert torch.equal(features[:21, 4, 9], features[43:64, 9, 4])  # the query's residue of rows, and of columns
    assert features[87, 4, 9] == pytest.approx(0.05)
    assert build_pair_features(chains[0].alignment, covariance=True).shape[0] == 574
