"""AlphaFold 1 (Senior et al. 2020, "Improved protein structure prediction using potentials from deep learning"): a deep
residual network of dilated convolutions that predicts the distances of all pairs of residues, in crops of 64 x 64.

Two towers of pre-activation bottlenecks, 7 x 4 at 256 channels and 48 x 4 at 128, 220 in all, with dilations 1, 2, 4, 8
in turn; a distribution over 64 distances for each pair, with a bias for each offset in the sequence; and, from the
maximum and the mean over the crop's rows and columns, torsions (36 x 36 bins of φ and ψ), secondary structure and
accessibility of each residue. Structures are found by `proteins/potential.py`. Reference: the released
`alphafold_casp13` of deepmind-research.

DISCREPANCY: in the released code, the first and the last block of each tower are plain convolutions, so that it has 216
bottlenecks; the paper counts 220, and so do we.
DISCREPANCY: accessibility is a distribution over ten numbers of neighbours (Cβ within 10 Å), not DSSP's surface.

Letters: B crops, F features, n x m residues, K bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.dilated_residual import DilatedBottleneck, DilatedTower
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.proteins.pair_features import count_channels
from headwise.proteins.secondary import STATES

MAX_OFFSET = 32  # residues apart that have a bias of their own; all farther ones share one
NEIGHBOUR_BINS = 10


@dataclass(frozen=True, eq=False)
class ResiduePrediction:
    """Logits for each residue of one side of a crop."""

    torsions: Tensor  # (B, n, 36 * 36): bins of φ, then ψ
    secondary: Tensor  # (B, n, 8)
    neighbours: Tensor  # (B, n, 10)


@dataclass(frozen=True, eq=False)
class PairPrediction:
    """Logits of a crop: distances of pairs, and what is said of its rows and columns."""

    distances: Tensor  # (B, n, m, K)
    rows: ResiduePrediction
    columns: ResiduePrediction


class DistanceNetwork(nn.Module):
    """Distances of all pairs of residues in a crop, from maps of features."""

    reference_counts: Tensor

    def __init__(self, channels: int, widths: tuple[int, ...], depths: tuple[int, ...], bins: int, torsion_bins: int):
        super().__init__()
        inputs = (channels, *widths)
        self.towers = nn.Sequential(*(DilatedTower(*sizes) for sizes in zip(inputs, widths, depths, strict=False)))
        self.distances = nn.Conv2d(widths[-1], bins, 1)
        self.offset_bias = nn.Parameter(torch.zeros(MAX_OFFSET + 1, bins))
        self.torsions = nn.Linear(2 * widths[-1], torsion_bins**2)
        self.secondary = nn.Linear(2 * widths[-1], len(STATES))
        self.neighbours = nn.Linear(2 * widths[-1], NEIGHBOUR_BINS)
        self.bins, self.torsion_bins = bins, torsion_bins
        self.register_buffer("reference_counts", torch.ones(MAX_OFFSET + 1, bins))  # of true distances, in training

    def forward(self, features: Tensor, offsets: Tensor | None = None) -> PairPrediction:
        """(B, F, n, m) features, and how far residues are apart in the sequence, (B, n, m); without it, the crop is on
        the diagonal."""
        if offsets is None:
            rows, columns = (torch.arange(size, device=features.device) for size in features.shape[-2:])
            offsets = (columns - rows[:, None]).expand(len(features), -1, -1)
        maps = self.towers(features)  # (B, C, n, m)
        bias = self.offset_bias[offsets.abs().clamp(max=MAX_OFFSET)]  # (B, n, m, K)
        distances = self.distances(maps).permute(0, 2, 3, 1) + bias
        return PairPrediction(distances, self.describe_residues(maps, 3), self.describe_residues(maps, 2))

    @torch.no_grad()
    def count_reference(self, offsets: Tensor, distances: Tensor) -> None:
        """Count bins of true distances (B, n, m) by offset; negative ones are unknown. The potential is corrected by
        what an offset alone says of a distance."""
        known = distances >= 0
        places = offsets.abs().clamp(max=MAX_OFFSET) * self.bins + distances.clamp(min=0)
        counts = torch.zeros_like(self.reference_counts)  # not added to singly: 2^24 + 1 is 2^24 in 32 bits
        counts.view(-1).index_add_(0, places.flatten(), known.flatten().to(counts.dtype))
        self.reference_counts += counts

    @property
    def reference(self) -> Tensor:
        """The share of each distance among pairs of an offset, (33, K)."""
        return self.reference_counts / self.reference_counts.sum(-1, keepdim=True)

    def describe_residues(self, maps: Tensor, over: int) -> ResiduePrediction:
        """Heads on the maximum and the mean over one side of the maps."""
        pooled = torch.cat([maps.amax(over), maps.mean(over)], dim=1).transpose(1, 2)  # (B, n, 2C)
        return ResiduePrediction(self.torsions(pooled), self.secondary(pooled), self.neighbours(pooled))


class AlphaFold1Config(ModelConfig):
    """The distance network. `depths` are blocks of each tower."""

    tasks = ("distogram",)
    kind: Literal["alphafold1"] = "alphafold1"
    widths: tuple[int, ...] = Field((256, 128), min_length=1)
    depths: tuple[int, ...] = Field((28, 192), min_length=1)
    bins: int = Field(64, ge=2)  # of distances from 2 to 22 Å
    torsion_bins: int = Field(36, ge=2)  # of φ, and of ψ
    crop: int = Field(64, ge=4)  # residues of a crop's side
    covariance: bool = True  # all 22 x 22 covariances of two columns as features, not their norm alone

    @model_validator(mode="after")
    def _check_towers(self) -> AlphaFold1Config:
        if len(self.widths) != len(self.depths):
            raise ValueError(f"{len(self.widths)} `widths` need as many `depths`, not {len(self.depths)}")
        return self

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of a crop."""
        return count_channels(self.covariance), self.crop, self.crop

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        model = DistanceNetwork(count_channels(self.covariance), self.widths, self.depths, self.bins, self.torsion_bins)
        init_weights(model)
        return model


def init_weights(model: nn.Module) -> None:
    """He initialisation; the last convolution of a bottleneck is zero, so that deep towers begin as identities."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)
    for module in model.modules():  # after their convolutions
        if isinstance(module, DilatedBottleneck):
            module.init_residual()


SIZES: dict[str, dict[str, Any]] = {
    "casp13": {},
    "small": {"widths": (48, 32), "depths": (4, 8), "covariance": False},
    "tiny": {"widths": (16, 8), "depths": (2, 4), "crop": 16, "torsion_bins": 6, "covariance": False},
}

ENTRY = Entry(
    name="alphafold1",
    paper="Senior et al., Improved protein structure prediction using potentials from deep learning",
    year=2020,
    family="proteins",
    config=AlphaFold1Config,
    sizes=SIZES,
    vocab=0,
    checks=(
        Check(
            "the block of the paper written out with torch.nn.functional, its receptive field; 220 blocks",
            "tests/models/test_alphafold1.py::test_a_block_is_that_of_the_paper",
        ),
    ),
)
