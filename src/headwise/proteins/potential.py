"""The potential of AlphaFold 1 and its minimisation (Senior et al. 2020): from predicted distances and torsions to a
structure, by gradient descent on the torsions of the backbone.

V(φ, ψ) = Σ_ij [-log p(d_ij) + log p_ref(d_ij)] - Σ_i log vonMises(φ_i, ψ_i) + clashes. Distances enter through natural
cubic splines over the bins; `p_ref` is what is expected of the offset in the sequence alone.

DISCREPANCY: clashes are a quadratic penalty on overlapping van der Waals spheres of the backbone and Cβ, not Rosetta's
`score2_smooth`.

Letters: L residues, P pairs, K bins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headwise.proteins.distograms import DistanceBins
from headwise.proteins.residues import ATOM_RADII
from headwise.proteins.torsions import BUILT_ATOMS, TRANS, build_backbone

FLOOR = 1e-5  # added to probabilities, so that logarithms are finite
MAX_KAPPA = 100.0  # of the von Mises distribution: a standard deviation of 6°
ALLOWED_OVERLAP = 0.4  # Å of two van der Waals spheres
RADII = tuple(ATOM_RADII[atom] for atom in BUILT_ATOMS)  # of N, Cα, C, Cβ, O
MIN_SEPARATION = 3  # residues between atoms that may clash


@dataclass(frozen=True, eq=False)
class TorsionDistribution:
    """A von Mises distribution of φ and ψ for each residue."""

    mean: Tensor  # (L, 2)
    kappa: Tensor  # (L, 2) concentration; 0: uniform

    @classmethod
    def fit(cls, probabilities: Tensor) -> TorsionDistribution:
        """Fit to histograms of φ and ψ, (L, n, n), by the mean direction of each and its length."""
        count = probabilities.shape[-1]
        centres = -math.pi + 2 * math.pi * (torch.arange(count, dtype=probabilities.dtype) + 0.5) / count
        marginals = torch.stack([probabilities.sum(-1), probabilities.sum(-2)], dim=1)  # (L, 2, n)
        x, y = (marginals * centres.cos()).sum(-1), (marginals * centres.sin()).sum(-1)
        length = (x.square() + y.square()).sqrt().clamp(max=1 - 1e-6)
        return cls(torch.atan2(y, x), estimate_kappa(length).clamp(max=MAX_KAPPA))

    def compute_energy(self, angles: Tensor) -> Tensor:
        """-log of the density at φ and ψ, (L, 2), without its constant."""
        return (self.kappa * (1 - (angles - self.mean).cos())).sum()

    def sample(self, source: torch.Generator) -> Tensor:
        """φ and ψ, (L, 2), drawn from the normal distribution that is nearest."""
        spread = (1 / self.kappa.clamp(min=0.1)).sqrt()
        return self.mean + spread * torch.randn(self.mean.shape, generator=source, dtype=self.mean.dtype)


def estimate_kappa(length: Tensor) -> Tensor:
    """The concentration of a von Mises distribution whose mean vector has this length (Best and Fisher 1981)."""
    spread = 2 * length + length**3 + 5 * length**5 / 6
    middle = -0.4 + 1.39 * length + 0.43 / (1 - length)
    sharp = 1 / (length**3 - 4 * length.square() + 3 * length).clamp(min=1e-9)
    return torch.where(length < 0.53, spread, torch.where(length < 0.85, middle, sharp))


def build_spline_matrix(count: int, step: float) -> Tensor:
    """The linear map from values at equidistant knots to the second derivatives of their natural cubic spline,
    (K, K)."""
    inner = count - 2
    system = torch.zeros(inner, inner, dtype=torch.double)
    system.diagonal().fill_(4.0)
    system.diagonal(1).fill_(1.0)
    system.diagonal(-1).fill_(1.0)
    differences = torch.zeros(inner, count, dtype=torch.double)
    rows = torch.arange(inner)
    differences[rows, rows], differences[rows, rows + 1], differences[rows, rows + 2] = 1.0, -2.0, 1.0
    matrix = torch.zeros(count, count, dtype=torch.double)
    matrix[1:-1] = torch.linalg.solve(system, 6 / step**2 * differences)
    return matrix


class DistancePotential:
    """-log p(d) + log p_ref(d) of all pairs as natural cubic splines over the centres of the bins. Beyond the last
    centre it is constant, below the first one it goes on in a straight line."""

    def __init__(self, probabilities: Tensor, bins: DistanceBins, reference: Tensor | None = None):
        """`probabilities` (L, L, K); `reference` (M, K) by the offset in the sequence, of which the last one counts for
        all larger ones. Without it, the potential has no correction."""
        length = len(probabilities)
        self.rows, self.columns = torch.triu_indices(length, length, offset=1)
        chosen = probabilities[self.rows, self.columns].double()  # (P, K)
        values = -(chosen + FLOOR).log()
        if reference is not None:
            offsets = (self.columns - self.rows).clamp(max=len(reference) - 1)
            values = values + (reference.double() + FLOOR).log()[offsets]
        self.bins = bins
        self.values = values.float()
        self.curvatures = (values @ build_spline_matrix(bins.count, bins.width).T).float()

    def __call__(self, beta: Tensor) -> Tensor:
        """The energy of Cβ, (L, 3)."""
        distances = (beta[self.rows] - beta[self.columns]).square().sum(-1).add(1e-8).sqrt()  # (P,)
        return self.evaluate(distances).sum()

    def evaluate(self, distances: Tensor) -> Tensor:
        """The energy of each pair at its distance, (P,)."""
        step = self.bins.width
        place = (distances - (self.bins.low + step / 2)) / step  # in bins from the first centre
        inside = place.clamp(max=self.bins.count - 1)
        left = inside.detach().floor().long().clamp(0, self.bins.count - 2)
        b = inside - left  # 0 to 1; negative below the first centre
        a = 1 - b
        low, high = (self.values.gather(1, (left + side).unsqueeze(1)).squeeze(1) for side in (0, 1))
        bend, next_bend = (self.curvatures.gather(1, (left + side).unsqueeze(1)).squeeze(1) for side in (0, 1))
        cubic = ((a**3 - a) * bend + (b**3 - b) * next_bend) * step**2 / 6
        straight = -b * (2 * bend + next_bend) * step**2 / 6  # the spline's slope at its first knot
        return a * low + b * high + torch.where(b < 0, straight, cubic)


def compute_clashes(points: Tensor) -> Tensor:
    """Σ (overlap)² of van der Waals spheres of N, Cα, C, Cβ and O, (L, 5, 3), of residues three or more apart."""
    length = len(points)
    flat = points.flatten(0, 1)  # (5L, 3)
    radii = points.new_tensor(RADII).repeat(length)
    owner = torch.arange(length, device=points.device).repeat_interleave(len(RADII))
    first, second = torch.where(owner - owner[:, None] >= MIN_SEPARATION)
    near = (flat[first] - flat[second]).detach().square().sum(-1) < (2 * max(RADII)) ** 2
    first, second = first[near], second[near]
    distances = (flat[first] - flat[second]).square().sum(-1).add(1e-8).sqrt()
    overlap = radii[first] + radii[second] - ALLOWED_OVERLAP - distances
    return overlap.clamp(min=0).square().sum()


@dataclass(frozen=True)
class MinimiseSettings:
    """How a potential is minimised: `restarts` from the torsion distribution, then `noisy_restarts` from the best
    structure so far with noise on its torsions."""

    restarts: int = 4
    noisy_restarts: int = 4
    steps: int = 200  # of L-BFGS in each
    noise: float = 30.0  # degrees
    clash_weight: float = 2.0
    torsion_weight: float = 1.0
    seed: int = 0


@dataclass(frozen=True, eq=False)
class FoldedChain:
    """The structure of the lowest potential that was found."""

    torsions: Tensor  # (L, 2): φ and ψ
    points: Tensor  # (L, 5, 3): N, Cα, C, Cβ, O
    energy: float
    energies: Sequence[float] = field(default_factory=tuple)  # of each restart


DEFAULT = MinimiseSettings()


def minimise(
    distances: DistancePotential, torsions: TorsionDistribution, settings: MinimiseSettings = DEFAULT
) -> FoldedChain:
    """Minimise the potential over φ and ψ by L-BFGS, from several starts."""
    source = torch.Generator().manual_seed(settings.seed)
    best, energies = None, []
    for number in range(settings.restarts + settings.noisy_restarts):
        if number < settings.restarts or best is None:
            start = torsions.sample(source)
        else:
            noise = math.radians(settings.noise) * torch.randn(best.torsions.shape, generator=source)
            start = best.torsions + noise
        found = descend(distances, torsions, start.float(), settings)
        energies.append(found.energy)
        if best is None or found.energy < best.energy:
            best = found
    assert best is not None
    return FoldedChain(best.torsions, best.points, best.energy, tuple(energies))


def descend(
    distances: DistancePotential, torsions: TorsionDistribution, start: Tensor, settings: MinimiseSettings
) -> FoldedChain:
    """L-BFGS with a strong Wolfe line search from one start, (L, 2)."""
    angles = start.clone().requires_grad_()
    omega = torch.full((len(start),), TRANS)
    optimiser = torch.optim.LBFGS([angles], max_iter=settings.steps, history_size=20, line_search_fn="strong_wolfe")

    def compute_energy() -> Tensor:
        points = build_backbone(angles[:, 0], angles[:, 1], omega)
        energy = distances(points[:, 3]) + settings.clash_weight * compute_clashes(points)
        return energy + settings.torsion_weight * torsions.compute_energy(angles)

    def closure() -> Tensor:
        optimiser.zero_grad()
        energy = compute_energy()
        energy.backward()
        return energy

    optimiser.step(closure)
    with torch.no_grad():
        energy = float(compute_energy())
        return FoldedChain(angles.detach(), build_backbone(angles[:, 0], angles[:, 1], omega), energy)
