"""Crops of distance maps with their targets, the loss of AlphaFold 1, and its inference by overlapping tiles.

Letters: B crops, n residues of a crop's side, L residues of a chain, K bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.blocks.losses import Loss
from headwise.data.batches import BatchPlan
from headwise.models.alphafold1 import NEIGHBOUR_BINS, DistanceNetwork, PairPrediction, ResiduePrediction
from headwise.proteins.alignments import AlignedChain
from headwise.proteins.chain_sets import Chains
from headwise.proteins.distograms import DistanceBins, measure_bins, symmetrise
from headwise.proteins.metrics import compute_distances
from headwise.proteins.pair_features import build_pair_features
from headwise.proteins.secondary import COIL, STATES, reduce_states
from headwise.proteins.torsions import measure_torsions

IGNORED = -100  # a target that is not known
NEIGHBOUR_RADIUS, NEIGHBOURS_A_BIN = 10.0, 3  # Å between Cβ; neighbours in each bin of the accessibility


@dataclass(frozen=True, eq=False)
class CropBatch:
    """Features and targets of crops; the targets of residues are those of its rows, then of its columns."""

    features: Tensor  # (B, F, n, n)
    offsets: Tensor  # (B, n, n) residues apart in the sequence
    distances: Tensor  # (B, n, n) bins
    torsions: Tensor  # (B, 2, n) bins of φ and ψ together
    secondary: Tensor  # (B, 2, n)
    neighbours: Tensor  # (B, 2, n)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def tokens(self) -> int:
        """The number of residues, which the training loop counts."""
        return len(self) * self.features.shape[-1]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> CropBatch:
        return CropBatch(*(getattr(self, each.name).to(device, non_blocking=non_blocking) for each in fields(self)))


@dataclass(frozen=True)
class CropSettings:
    """What crops are made of."""

    crop: int
    bins: DistanceBins
    torsion_bins: int
    covariance: bool


class CropData:
    """Random crops of chains for the training loop: one of each chain in an epoch."""

    unit = "residues"

    def __init__(self, chains: Chains, settings: CropSettings, seed: int, size: int):
        self.chains, self.settings, self.seed, self.size = chains, settings, seed, size

    @property
    def summary(self) -> str:
        return f"{len(self.chains):,} chains to train on; {len(self.plan(0)):,} batches an epoch"

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        """Numbers of crops: a chain has another crop in each epoch."""
        count = len(self.chains)
        order = np.random.default_rng([self.seed, epoch]).permutation(count) + epoch * count
        starts = np.arange(0, count, self.size)
        return BatchPlan(order, starts, np.arange(len(starts)))

    def batch(self, numbers: np.ndarray) -> CropBatch:
        crops = []
        for number in numbers.tolist():
            chain = self.chains[number % len(self.chains)]
            random = np.random.default_rng([self.seed, number])
            free = max(0, len(chain.structure) - self.settings.crop)
            top, left = random.integers(0, free + 1, 2).tolist()
            crops.append(cut_crop(chain, self.settings, top, left))
        return CropBatch(*(torch.stack([getattr(crop, each.name) for crop in crops]) for each in fields(CropBatch)))


def cut_crop(chain: AlignedChain, settings: CropSettings, top: int, left: int) -> CropBatch:
    """One crop, without the dimension of batches; beyond the chain's ends it is zero and has no targets."""
    size = settings.crop
    distances, known = measure_bins(chain.structure, settings.bins)
    targets = torch.where(known, distances, IGNORED)
    residues = measure_residue_targets(chain, settings.torsion_bins)  # 3 x (L,)
    features = build_pair_features(chain.alignment, settings.covariance)
    sides = [[_pad(values[start : start + size], size, IGNORED) for start in (top, left)] for values in residues]
    rows = torch.arange(top, top + size)
    columns = torch.arange(left, left + size)
    return CropBatch(
        cut_map(features, top, left, size, 0.0),
        columns - rows[:, None],
        cut_map(targets, top, left, size, IGNORED),
        *(torch.stack(side) for side in sides),
    )


def cut_map(maps: Tensor, top: int, left: int, size: int, fill: float) -> Tensor:
    """A crop of `size` x `size` out of (..., L, L), filled up beyond the ends."""
    part = maps[..., top : top + size, left : left + size]
    return F.pad(part, (0, size - part.shape[-1], 0, size - part.shape[-2]), value=fill)


def _pad(values: Tensor, size: int, fill: int) -> Tensor:
    return F.pad(values, (0, size - len(values)), value=fill)


def measure_residue_targets(chain: AlignedChain, torsion_bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Bins of torsions, states of secondary structure, and bins of neighbours, 3 x (L,); `IGNORED` where they are not
    known."""
    measured = measure_torsions(chain.structure)
    places = ((measured.angles[:, :2] + torch.pi) / (2 * torch.pi) * torsion_bins).floor().long() % torsion_bins
    torsions = torch.where(measured.known[:, :2].all(-1), places[:, 0] * torsion_bins + places[:, 1], IGNORED)
    states = torch.full_like(torsions, IGNORED)
    if chain.secondary:
        states = torch.tensor([STATES.index("L" if state == COIL else state) for state in chain.secondary])
    points, known = chain.structure.beta
    count = ((compute_distances(points) < NEIGHBOUR_RADIUS) & known).sum(-1) - 1
    neighbours = (count // NEIGHBOURS_A_BIN).clamp(0, NEIGHBOUR_BINS - 1)
    return torsions, states, torch.where(known, neighbours, IGNORED)


def compute_loss(prediction: PairPrediction, batch: CropBatch, auxiliary: float) -> Loss:
    """Cross-entropy of distances, summed over pairs, and `auxiliary` times that of torsions, secondary structure and
    neighbours of the crop's residues, each a mean that counts as that of a pair."""
    logits = prediction.distances.flatten(0, 2).float()
    labels = batch.distances.flatten()
    nll = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    count = (labels != IGNORED).sum().clamp(min=1)
    extra = sum(
        compute_residue_loss(side, batch, number) for number, side in enumerate((prediction.rows, prediction.columns))
    )
    return Loss(nll + auxiliary * count * extra / 2, nll.detach(), count)


def compute_residue_loss(prediction: ResiduePrediction, batch: CropBatch, side: int) -> Tensor:
    """The sum of the mean cross-entropies of a side's residues; 0 of what is known of none."""
    losses = []
    for name in ("torsions", "secondary", "neighbours"):
        logits, labels = getattr(prediction, name).flatten(0, 1).float(), getattr(batch, name)[:, side].flatten()
        total = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
        losses.append(total / (labels != IGNORED).sum().clamp(min=1))
    return torch.stack(losses).sum()


@dataclass(frozen=True, eq=False)
class ChainPrediction:
    """Distributions of a whole chain."""

    distances: Tensor  # (L, L, K), symmetric
    torsions: Tensor  # (L, n, n) of φ and ψ
    secondary: Tensor  # (L, 8)
    neighbours: Tensor  # (L, 10)

    def describe_states(self) -> str:
        """The most probable of the three states of each residue."""
        return reduce_states("".join(STATES[state] for state in self.secondary.argmax(-1).tolist()))


def predict_tiles(model: DistanceNetwork, features: Tensor, crop: int, stride: int) -> ChainPrediction:
    """Predict a chain, features (F, L, L), from crops that overlap: probabilities are averaged with weights that fall
    towards a crop's edges, where it sees least."""
    length = features.shape[-1]
    starts = list_starts(length, crop, stride)
    window = torch.minimum(torch.arange(crop) + 1, torch.arange(crop, 0, -1)).float()  # (n,) 1 2 3 ... 3 2 1
    sums: dict[str, Tensor] = {}
    for top in starts:
        rows = torch.arange(top, top + crop)
        for left in starts:
            offsets = torch.arange(left, left + crop) - rows[:, None]
            tile = cut_map(features, top, left, crop, 0.0)
            output = model(tile[None], offsets[None].to(features.device))
            weights = window[:, None] * window
            _add(sums, "distances", output.distances[0], weights, (top, left), length)
            for side, start in ((output.rows, top), (output.columns, left)):
                for name in ("torsions", "secondary", "neighbours"):
                    _add(sums, name, getattr(side, name)[0], window, (start,), length)
    means = {name: total[..., :-1] / total[..., -1:] for name, total in sums.items()}
    torsions = means["torsions"].unflatten(-1, (model.torsion_bins, model.torsion_bins))
    return ChainPrediction(symmetrise(means["distances"]), torsions, means["secondary"], means["neighbours"])


def list_starts(length: int, crop: int, stride: int) -> list[int]:
    """Where tiles begin, so that they cover a chain and the last one ends with it.

    >>> list_starts(100, 64, 32), list_starts(30, 64, 32)
    ([0, 32, 36], [0])
    """
    last = max(0, length - crop)
    return sorted({*range(0, last + 1, stride), last})


def _add(
    sums: dict[str, Tensor], name: str, logits: Tensor, weights: Tensor, starts: tuple[int, ...], length: int
) -> None:
    """Add weighted probabilities, and as a last channel the weights, at a tile's place."""
    weights = weights.to(logits.device).unsqueeze(-1)
    values = torch.cat([logits.float().softmax(-1) * weights, weights], dim=-1)
    if name not in sums:
        sums[name] = values.new_zeros(*[length] * len(starts), values.shape[-1])
    place = tuple(slice(start, min(start + size, length)) for start, size in zip(starts, logits.shape, strict=False))
    sums[name][place] += values[tuple(slice(0, part.stop - part.start) for part in place)]
