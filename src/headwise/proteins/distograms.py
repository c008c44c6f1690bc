"""Distograms: distances of Cβ in bins, and what is read off them.

Letters: L residues, K bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.proteins.metrics import CONTACT, compute_distances
from headwise.proteins.structure import Structure


@dataclass(frozen=True)
class DistanceBins:
    """Equal bins of distances; the first and the last one take what is beyond.

    >>> bins = DistanceBins()
    >>> bins.width, bins.assign(torch.tensor([0.0, 2.4, 21.9, 40.0])).tolist()
    (0.3125, [0, 1, 63, 63])
    """

    count: int = 64
    low: float = 2.0  # Å
    high: float = 22.0

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.count

    @property
    def centres(self) -> Tensor:
        """The middle of each bin, (K,)."""
        return self.low + self.width * (torch.arange(self.count) + 0.5)

    def assign(self, distances: Tensor) -> Tensor:
        """The bin of each distance."""
        return ((distances - self.low) / self.width).floor().long().clamp(0, self.count - 1)


def measure_bins(structure: Structure, bins: DistanceBins) -> tuple[Tensor, Tensor]:
    """The distogram of a structure: bins of all pairs of residues, by Cβ, and which are known, both (L, L)."""
    points, known = structure.beta
    return bins.assign(compute_distances(points)), known[:, None] & known


def symmetrise(probabilities: Tensor) -> Tensor:
    """The mean of the distributions of (i, j) and (j, i), (L, L, K)."""
    return (probabilities + probabilities.transpose(0, 1)) / 2


def compute_contact_probabilities(probabilities: Tensor, bins: DistanceBins, cutoff: float = CONTACT) -> Tensor:
    """The probability that residues are within 8 Å, (L, L, K) -> (L, L); the bin with the cutoff counts in part."""
    edges = bins.low + bins.width * torch.arange(bins.count)
    share = ((cutoff - edges) / bins.width).clamp(0, 1)
    share[-1] = share[-1] if cutoff < bins.high else 1.0
    return probabilities @ share.to(probabilities)
