"""The potential of distograms: splines beside SciPy's, the reference, torsions, and the recovery of a known fold."""

import math

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline
from scipy.stats import vonmises

from headwise.proteins.chains import ChainSettings, build_fold
from headwise.proteins.distograms import DistanceBins, compute_contact_probabilities, symmetrise
from headwise.proteins.metrics import compute_distances, compute_mean_lddt, compute_rmsd
from headwise.proteins.potential import (
    FLOOR,
    DistancePotential,
    MinimiseSettings,
    TorsionDistribution,
    compute_clashes,
    minimise,
)

BINS = DistanceBins()


def make_distogram(points, spread=0.4):
    distances = compute_distances(points).clamp(max=BINS.high)
    return torch.softmax(-((BINS.centres - distances.unsqueeze(-1)) / spread).square() / 2, -1)


def test_the_potential_is_scipys_natural_spline():
    random = torch.Generator().manual_seed(0)
    probabilities = symmetrise(torch.rand(4, 4, 64, generator=random).softmax(-1))
    potential = DistancePotential(probabilities, BINS)
    distances = torch.tensor([2.5, 4.01, 7.77, 12.3, 18.05, 21.5])
    expected = [
        CubicSpline(BINS.centres.numpy(), -np.log(probabilities[row, column].numpy() + FLOOR), bc_type="natural")(
            distance
        )
        for row, column, distance in zip(
            potential.rows.tolist(), potential.columns.tolist(), distances.tolist(), strict=True
        )
    ]
    np.testing.assert_allclose(potential.evaluate(distances).numpy(), expected, rtol=1e-4)


def test_beyond_the_bins_it_is_constant_and_below_them_straight():
    probabilities = make_distogram(torch.tensor([[0.0, 0, 0], [6.0, 0, 0]]), spread=3.0)
    potential = DistancePotential(probabilities, BINS)
    last = BINS.centres[-1]
    far = [float(potential.evaluate(torch.tensor([value]))) for value in (float(last), 25.0, 60.0)]
    assert far[0] == pytest.approx(far[1]) == pytest.approx(far[2])
    low, middle, high = (float(potential.evaluate(torch.tensor([value]))) for value in (0.5, 1.0, 1.5))
    assert high - middle == pytest.approx(middle - low, rel=1e-3) and low > middle > high
    step = 1e-2
    first = float(BINS.centres[0])
    around = [float(potential.evaluate(torch.tensor([first + sign * step]))) for sign in (-1, 0, 1)]
    assert around[2] - around[1] == pytest.approx(around[1] - around[0], rel=2e-2)  # no kink


def test_the_reference_of_an_offset_is_taken_off():
    """What is no more likely than at any offset has no energy."""
    reference = torch.rand(3, 64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    offsets = (torch.arange(5)[:, None] - torch.arange(5)).abs().clamp(max=2)
    potential = DistancePotential(reference[offsets], BINS, reference)
    assert potential.values.abs().max() < 1e-5
    assert DistancePotential(reference[offsets], BINS).values.abs().max() > 1


def test_torsions_are_fitted_as_scipy_has_them():
    centres = -math.pi + 2 * math.pi * (torch.arange(360) + 0.5) / 360
    rows = [vonmises.pdf(centres.numpy(), kappa, mean) for kappa, mean in ((4.0, 3.0), (30.0, -1.0))]
    phi, psi = (torch.tensor(row / row.sum()) for row in rows)
    fitted = TorsionDistribution.fit((phi[:, None] * psi)[None])
    torch.testing.assert_close(fitted.mean, torch.tensor([[3.0, -1.0]]), atol=1e-3, rtol=0, check_dtype=False)
    torch.testing.assert_close(fitted.kappa, torch.tensor([[4.0, 30.0]]), rtol=0.02, atol=0, check_dtype=False)
    angles = torch.tensor([[0.3, 0.4]])
    expected = sum(
        vonmises.logpdf(m, k, m) - vonmises.logpdf(float(x), k, m) for k, m, x in ((4, 3, 0.3), (30, -1, 0.4))
    )
    exact = TorsionDistribution(torch.tensor([[3.0, -1.0]]), torch.tensor([[4.0, 30.0]]))
    assert float(exact.compute_energy(angles)) == pytest.approx(expected, rel=1e-5)


def test_atoms_that_overlap_cost_the_square():
    points = 50.0 * torch.arange(4)[:, None, None] + 10.0 * torch.arange(5)[None, :, None] * torch.ones(1, 1, 3)
    assert float(compute_clashes(points)) == 0
    points[3, 1] = points[0, 1] + torch.tensor([2.0, 0, 0])  # Cα of residues three apart: 3.4 - 0.4 - 2 = 1 Å
    assert float(compute_clashes(points)) == pytest.approx(1.0, abs=1e-4)


@pytest.fixture(scope="module")
def fold():
    return build_fold(0, ChainSettings(min_length=24, max_length=24, rows=1, rounds=8, candidates=16))


def test_a_fold_is_recovered_from_its_distogram(fold):
    """Started from torsions that are off by 17° and with a spread of 30°."""
    noise = 0.3 * torch.randn(24, 2, generator=torch.Generator().manual_seed(1))
    torsions = TorsionDistribution(fold.torsions[:, :2] + noise, torch.full((24, 2), 4.0))
    settings = MinimiseSettings(restarts=1, noisy_restarts=1, steps=100)
    found = minimise(DistancePotential(make_distogram(fold.points[:, 3]), BINS), torsions, settings)
    alpha = found.points[:, 1], fold.points[:, 1]
    assert compute_rmsd(*alpha) < 0.8
    assert compute_mean_lddt(*alpha, torch.arange(24)) > 0.95
    assert len(found.energies) == 2 and found.energy == min(found.energies)
    assert float(compute_clashes(found.points)) < 5


def test_contacts_are_the_mass_below_eight_angstrom(fold):
    sharp = make_distogram(fold.points[:, 3], spread=0.05)
    probabilities = compute_contact_probabilities(sharp, BINS)
    distances = compute_distances(fold.points[:, 3])
    clear = (distances - 8).abs() > 0.4
    assert torch.equal((probabilities > 0.5)[clear], (distances < 8)[clear])
    assert probabilities[0, 0] == pytest.approx(1, abs=1e-5)
