"""Metrics of protein structures: lDDT, TM-score, GDT, RMSD, dRMSD, contact precision and clashes.

A prediction is compared with the true structure of the same sequence, residue by residue: nothing is aligned.

Letters: L residues, N points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from headwise.errors import UserError
from headwise.proteins.residues import ATOM_INDEX, ATOM_RADII, CA, CLASH_OVERLAP, C, N
from headwise.proteins.structure import Structure
from headwise.proteins.superposition import search_superpositions, superimpose

LDDT_RADIUS, LDDT_THRESHOLDS = 15.0, (0.5, 1.0, 2.0, 4.0)  # Å
GDT_TS, GDT_HA = (1.0, 2.0, 4.0, 8.0), (0.5, 1.0, 2.0, 4.0)  # Å
CONTACT = 8.0  # Å between Cβ
# Separations in the sequence of contacts (CASP): short 6 to 11, medium 12 to 23, long 24 and more.
RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"short": (6, 12), "medium": (12, 24), "long": (24, 10**9), "all": (6, 10**9)}
)


def compute_distances(points: Tensor) -> Tensor:
    """Distances of all pairs, (..., N, 3) -> (..., N, N)."""
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")


def compute_lddt(predicted: Tensor, true: Tensor, residues: Tensor) -> Tensor:
    """The local distance difference test of each residue (Mariani et al. 2013), 0 to 1, from points (N, 3) that belong
    to `residues` (N,): NaN where it has no pair.

    Pairs are those of different residues within 15 Å in the true structure; a pair counts by the share of the
    thresholds 0.5, 1, 2, 4 Å that its change of distance is within.
    """
    preserved, pairs = score_pairs(predicted, true, residues)
    count = int(residues.max()) + 1 if len(residues) else 0
    sums = torch.zeros(2, count, dtype=true.dtype, device=true.device)
    sums.index_add_(1, residues, torch.stack([preserved.sum(1), pairs.sum(1).to(true.dtype)]))
    return sums[0] / sums[1]  # 0 / 0 = NaN


def compute_mean_lddt(predicted: Tensor, true: Tensor, residues: Tensor) -> float:
    """lDDT over all pairs."""
    preserved, pairs = score_pairs(predicted, true, residues)
    return float(preserved.sum(dtype=torch.double) / pairs.sum())


def score_pairs(predicted: Tensor, true: Tensor, residues: Tensor) -> tuple[Tensor, Tensor]:
    """The share of thresholds that each pair is within, and which pairs count, both (N, N)."""
    distances = compute_distances(true)
    pairs = (distances < LDDT_RADIUS) & (residues[:, None] != residues)
    change = (compute_distances(predicted) - distances).abs_().masked_fill_(~pairs, torch.inf)
    count = sum((change < threshold).to(torch.uint8) for threshold in LDDT_THRESHOLDS)
    assert isinstance(count, Tensor)
    return count.to(true.dtype) / len(LDDT_THRESHOLDS), pairs


def compute_rmsd(predicted: Tensor, true: Tensor) -> float:
    """Root-mean-square deviation after the best superposition, (N, 3), in Å."""
    moved = superimpose(predicted, true, torch.ones_like(true[:, 0])).apply(predicted)
    return float((moved - true).square().sum(-1).mean().sqrt())


def compute_drmsd(predicted: Tensor, true: Tensor) -> float:
    """Distance RMSD: the root mean square change of all distances, in Å. It needs no superposition, and a mirror image
    has 0."""
    upper = torch.triu_indices(len(true), len(true), offset=1)
    change = (compute_distances(predicted) - compute_distances(true))[upper[0], upper[1]]
    return float(change.square().mean().sqrt())


def compute_tm_scale(length: int) -> float:
    """d0 of the TM-score for a chain of this length, in Å.

    >>> round(compute_tm_scale(100), 3)
    3.652
    """
    return max(0.5, 1.24 * (length - 15) ** (1 / 3) - 1.8) if length > 21 else 0.5


def compute_tm_score(predicted: Tensor, true: Tensor, length: int = 0) -> float:
    """TM-score (Zhang and Skolnick 2004): the largest mean of 1 / (1 + (d / d0)²) over superpositions of Cα, (N, 3).
    `length` is that of the true chain, where residues of it have no partner."""
    length = length or len(true)
    scale = compute_tm_scale(length)
    predicted, true = predicted.double(), true.double()
    scores = (
        (1 / (1 + (gaps / scale).square())).sum(-1).max() / length
        for gaps in search_superpositions(predicted, true, min(max(scale, 4.5), 8.0))
    )
    return float(max(scores))


def compute_gdt(predicted: Tensor, true: Tensor, thresholds: Sequence[float] = GDT_TS) -> float:
    """Global distance test (Zemla 2003), 0 to 1: the mean over thresholds of the largest share of Cα, (N, 3), that a
    superposition brings within it. GDT-TS by default; GDT-HA with `GDT_HA`."""
    predicted, true = predicted.double(), true.double()
    best = torch.zeros(len(thresholds), dtype=torch.double)
    scale = compute_tm_scale(len(true))
    for gaps in search_superpositions(predicted, true, min(max(scale, 4.5), 8.0)):
        within = torch.stack([(gaps <= threshold).double().mean(-1).max() for threshold in thresholds])
        best = best.maximum(within)
    return float(best.mean())


def find_contacts(structure: Structure, cutoff: float = CONTACT) -> tuple[Tensor, Tensor]:
    """Which residues touch, by Cβ (Cα of glycine), and which pairs are known, both (L, L)."""
    points, known = structure.beta
    return compute_distances(points) < cutoff, known[:, None] & known


def compute_contact_precision(
    scores: Tensor, contacts: Tensor, known: Tensor, kind: str = "long", shares: Sequence[int] = (5, 2, 1)
) -> dict[str, float]:
    """Precision of the L/5, L/2 and L highest scores, (L, L), of pairs in a range of separations.

    Where fewer pairs than that are known, all of them are judged, as in CASP.
    """
    length = len(scores)
    first, last = RANGES[kind]
    rows, columns = torch.triu_indices(length, length, offset=first)
    valid = known[rows, columns] & (columns - rows < last)
    rows, columns = rows[valid], columns[valid]
    order = scores[rows, columns].argsort(descending=True, stable=True)
    right = contacts[rows, columns][order].double()
    precision = {}
    for share in shares:
        top = right[: max(1, length // share)]
        precision["L" if share == 1 else f"L/{share}"] = float(top.mean()) if len(top) else float("nan")
    return precision


def count_clashes(structure: Structure) -> int:
    """Pairs of heavy atoms of different residues whose van der Waals spheres overlap by more than 1.5 Å; peptide bonds
    and disulfide bridges are no clashes."""
    residues, names = structure.mask.nonzero(as_tuple=True)
    points = structure.atoms[residues, names]
    radii = torch.tensor(ATOM_RADII)[names]
    limit = radii[:, None] + radii - CLASH_OVERLAP
    close = (compute_distances(points) < limit) & (residues[:, None] < residues)
    bond = (residues[:, None] + 1 == residues) & (names[:, None] == C) & (names == N)
    sulfur = names == ATOM_INDEX["SG"]
    return int((close & ~bond & ~(sulfur[:, None] & sulfur)).sum())


def compare_structures(predicted: Structure, true: Structure) -> dict[str, float]:
    """All metrics of a prediction, on the residues and atoms that both structures know."""
    if predicted.sequence != true.sequence:
        raise UserError(
            f"chain {predicted.chain} of {len(predicted)} residues and chain {true.chain} of {len(true)} have "
            "different sequences; compare structures of one sequence"
        )
    common = predicted.mask & true.mask  # (L, 37)
    alpha = common[:, CA]
    if int(alpha.sum()) < 3:
        raise UserError("fewer than three residues have Cα in both structures; there is nothing to compare")
    here, there = predicted.atoms[:, CA][alpha].double(), true.atoms[:, CA][alpha].double()
    rows, columns = common.nonzero(as_tuple=True)
    everywhere = predicted.atoms[rows, columns], true.atoms[rows, columns]
    return {
        "lDDT": compute_mean_lddt(*everywhere, rows),
        "lDDT-Cα": compute_mean_lddt(here, there, torch.arange(len(here))),
        "TM-score": compute_tm_score(here, there, int(true.mask[:, CA].sum())),
        "GDT-TS": compute_gdt(here, there),
        "RMSD": compute_rmsd(here, there),
        "dRMSD": compute_drmsd(here, there),
        "clashes": count_clashes(predicted),
    }
