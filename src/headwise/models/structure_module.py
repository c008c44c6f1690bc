"""The structure module of AlphaFold 2 (Jumper et al. 2021, supplement, Algorithm 20): from residue and pair
representations to frames, torsion angles and atoms.

DISCREPANCY: as in the released code, lengths inside the module are in units of 10 Å, and the torsion network applies a
ReLU to its inputs; the supplement has neither.

Letters: B proteins, L residues, C width, K width of the pairs, N layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwise.blocks.norm import LayerNorm
from headwise.blocks.point_attention import InvariantPointAttention, PointAttentionSizes
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context
from headwise.proteins.frames import Frames, stack_frames
from headwise.proteins.rigid_groups import TORSIONS, compute_group_frames, place_atoms

SCALE = 10.0  # Å in a unit of length inside the module
EPSILON = 1e-8


@dataclass(frozen=True)
class FoldedChain:
    """A predicted structure, with what its layers give on the way."""

    single: Tensor  # (B, L, C) representation of residues after the last layer
    backbones: Frames  # (N, B, L) of each layer, in Å
    torsions: Tensor  # (N, B, L, 7, 2) as (sin, cos), of length 1
    raw_torsions: Tensor  # (N, B, L, 7, 2) before they are normalised
    frames: Frames  # (B, L, 8) of all rigid groups, in Å
    atoms: Tensor  # (B, L, 14, 3) atom14, in Å


class Transition(nn.Module):
    """The transition of the structure module (Algorithm 20, lines 8-9): three linear layers with a residual."""

    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.drop = make_dropout(dropout)
        self.norm = LayerNorm(width)

    def forward(self, s: Tensor) -> Tensor:
        return self.norm(self.drop(s + self.layers(s)))


class TorsionBlock(nn.Module):
    """A residual block of the torsion network (Algorithm 20, lines 12-13)."""

    def __init__(self, width: int):
        super().__init__()
        self.layers = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class TorsionNetwork(nn.Module):
    """Torsion angles of each residue (Algorithm 20, lines 11-14), a residual network of the current and the first
    representation."""

    def __init__(self, width: int, hidden: int, depth: int = 2):
        super().__init__()
        self.current, self.first = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.blocks = nn.Sequential(*(TorsionBlock(hidden) for _ in range(depth)))
        self.out = nn.Linear(hidden, 2 * TORSIONS)

    def forward(self, s: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """2 x (B, L, C) -> angles of length 1 and as they are, 2 x (B, L, 7, 2)."""
        x = self.blocks(self.current(s.relu()) + self.first(first.relu()))
        raw = self.out(x.relu()).unflatten(-1, (TORSIONS, 2))
        return raw / raw.square().sum(-1, keepdim=True).clamp(min=EPSILON).sqrt(), raw


class StructureModule(nn.Module):
    """Structure module (Algorithm 20): `depth` layers with shared weights of invariant point attention, transition,
    backbone update and torsion angles. All residues start at the origin; no gradient flows through the rotations from
    one layer to the next."""

    def __init__(
        self, width: int, pair_width: int, sizes: PointAttentionSizes, depth: int, hidden: int, dropout: float
    ):
        super().__init__()
        self.depth = depth
        self.norm, self.pair_norm = LayerNorm(width), LayerNorm(pair_width)
        self.enter = nn.Linear(width, width)
        self.attention = InvariantPointAttention(width, pair_width, sizes)
        self.drop = make_dropout(dropout)
        self.attention_norm = LayerNorm(width)
        self.transition = Transition(width, dropout)
        self.backbone_update = nn.Linear(width, 6)  # Algorithm 23
        self.torsions = TorsionNetwork(width, hidden)

    def forward(
        self,
        s: Tensor,
        z: Tensor,
        residues: Tensor,
        keep: Tensor | None,
        frames: Frames | None = None,
        ctx: Context | None = None,
    ) -> FoldedChain:
        """Residues (B, L, C), pairs (B, L, L, K), residue types (B, L) and mask (B, L) -> a structure. `frames` (B, L)
        in Å are where residues start; without, at the origin."""
        ctx = ctx if ctx is not None else Context()
        first, z = self.norm(s), self.pair_norm(z)
        s = self.enter(first)
        frames = Frames.identity(s.shape[:-1], s) if frames is None else frames.scale(1 / SCALE)
        backbones, angles = [], []
        for number in range(self.depth):
            s = self.attention_norm(self.drop(s + self.attention(s, z, frames, keep, ctx.at(number))))
            s = self.transition(s)
            frames = frames.update(self.backbone_update(s))
            backbones.append(frames.scale(SCALE))
            angles.append(torch.stack(self.torsions(s, first)))
            frames = frames.detach_rotations()
        torsions, raw = torch.stack(angles, dim=1)  # 2 x (N, B, L, 7, 2)
        groups = compute_group_frames(backbones[-1], torsions[-1], residues)
        return FoldedChain(s, stack_frames(backbones), torsions, raw, groups, place_atoms(groups, residues))
