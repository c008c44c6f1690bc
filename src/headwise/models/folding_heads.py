"""Heads of AlphaFold 2 (Jumper et al. 2021, supplement, section 1.9): distances, masked residues and confidences.

Letters: B proteins, S rows of the alignment, L residues.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwise.blocks.norm import LayerNorm
from headwise.models.structure_module import FoldedChain
from headwise.proteins.features import ALIGNMENT_CLASSES
from headwise.proteins.residues import ATOMS

DISTOGRAM_BINS = 64
LDDT_BINS = 50
ERROR_BINS, ERROR_WIDTH = 64, 0.5  # of aligned errors: bins of 0.5 Å, the last one open


@dataclass(frozen=True)
class Prediction:
    """A predicted structure with the logits of all heads."""

    chain: FoldedChain
    distogram: Tensor  # (B, L, L, 64) distances between Cβ
    masked_msa: Tensor  # (B, S, L, 23) residues of cluster centres
    lddt: Tensor  # (B, L, 50) lDDT of Cα, in bins of 2 %
    aligned_error: Tensor  # (B, L, L, 64) error of residue j after superposition of the frames of residue i
    resolved: Tensor  # (B, L, 37) whether an atom is in the experiment's structure

    @property
    def plddt(self) -> Tensor:
        """pLDDT, the expected lDDT of Cα, 0 .. 100: (B, L) (Algorithm 29)."""
        centres = (torch.arange(LDDT_BINS, device=self.lddt.device) + 0.5) * (100 / LDDT_BINS)
        return self.lddt.softmax(-1) @ centres.to(self.lddt.dtype)

    @property
    def pae(self) -> Tensor:
        """PAE, the predicted aligned error, in Å: (B, L, L)."""
        centres = (torch.arange(ERROR_BINS, device=self.lddt.device) + 0.5) * ERROR_WIDTH
        return self.aligned_error.softmax(-1) @ centres.to(self.lddt.dtype)


class FoldingHeads(nn.Module):
    """The heads over the alignment, the pairs and the residues of the structure module."""

    def __init__(self, width: int, pair_width: int, single_width: int, hidden: int = 128):
        super().__init__()
        self.distogram = nn.Linear(pair_width, DISTOGRAM_BINS)
        self.masked_msa = nn.Linear(width, ALIGNMENT_CLASSES)
        self.lddt = nn.Sequential(
            LayerNorm(single_width), nn.Linear(single_width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, LDDT_BINS),
        )  # fmt: skip
        self.aligned_error = nn.Linear(pair_width, ERROR_BINS)
        self.resolved = nn.Linear(single_width, len(ATOMS))

    def forward(self, m: Tensor, z: Tensor, s: Tensor, chain: FoldedChain) -> Prediction:
        """Rows of the alignment (B, S, L, C), pairs (B, L, L, K) and residues (B, L, W) of the Evoformer."""
        half = self.distogram(z)
        return Prediction(
            chain,
            distogram=half + half.transpose(1, 2),  # a distance has no direction
            masked_msa=self.masked_msa(m),
            lddt=self.lddt(chain.single),
            aligned_error=self.aligned_error(z),
            resolved=self.resolved(s),
        )
