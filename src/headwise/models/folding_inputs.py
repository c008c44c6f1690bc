"""Embeddings of AlphaFold 2 (Jumper et al. 2021, supplement, Algorithms 3, 4, 16, 17 and 32): features, recycled
outputs and templates.

Letters: B proteins, S rows of the alignment, T templates, L residues, C width of the alignment, K width of the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.multihead import Attention, CrossProjection
from headwise.blocks.norm import LayerNorm
from headwise.blocks.stream import Context, Stream
from headwise.models.evoformer import PairSizes, build_pair_stack
from headwise.proteins.features import MSA_FEATURES, RESIDUE_CLASSES, Features
from headwise.proteins.templates import TEMPLATE_PAIR, TEMPLATE_TORSIONS, encode_distances

MAX_OFFSET = 32  # in relative positions
RECYCLE_BINS, RECYCLE_FIRST, RECYCLE_LAST = 15, 3.25, 20.75  # of distances between Cβ, in Å


class RelativePositions(nn.Module):
    """Relative positions of residues (Algorithm 4): a linear map of the one-hot offset, clipped at +-32."""

    def __init__(self, pair_width: int):
        super().__init__()
        self.project = nn.Linear(2 * MAX_OFFSET + 1, pair_width)

    def forward(self, positions: Tensor) -> Tensor:
        """(B, L) -> (B, L, L, K)."""
        offset = positions.unsqueeze(2) - positions.unsqueeze(1)
        bins = offset.clamp(-MAX_OFFSET, MAX_OFFSET) + MAX_OFFSET
        return self.project(F.one_hot(bins, 2 * MAX_OFFSET + 1).to(self.project.weight.dtype))


class InputEmbedding(nn.Module):
    """Input embedding (Algorithm 3): m_si = W_m msa_si + W_t t_i, z_ij = a_i + b_j + relative position.

    DISCREPANCY: t_i is the residue's type, 21 channels as in the supplement; the released code has one more, always 0.
    """

    def __init__(self, width: int, pair_width: int):
        super().__init__()
        self.left, self.right = nn.Linear(RESIDUE_CLASSES, pair_width), nn.Linear(RESIDUE_CLASSES, pair_width)
        self.target, self.msa = nn.Linear(RESIDUE_CLASSES, width), nn.Linear(MSA_FEATURES, width)
        self.positions = RelativePositions(pair_width)

    def forward(self, features: Features) -> tuple[Tensor, Tensor]:
        """Alignment (B, S, L, C) and pairs (B, L, L, K)."""
        types = F.one_hot(features.residues, RESIDUE_CLASSES).to(self.target.weight.dtype)
        z = self.left(types).unsqueeze(2) + self.right(types).unsqueeze(1) + self.positions(features.positions)
        return self.msa(features.msa) + self.target(types).unsqueeze(1), z


@dataclass(frozen=True)
class Recycled:
    """What a cycle leaves to the next (Algorithm 30): its first row, pairs and Cβ; zeros before the first."""

    first_row: Tensor  # (B, L, C)
    pairs: Tensor  # (B, L, L, K)
    beta: Tensor  # (B, L, 3)

    @classmethod
    def zeros(cls, m: Tensor, z: Tensor) -> Recycled:
        return cls(torch.zeros_like(m[:, 0]), torch.zeros_like(z), z.new_zeros(*z.shape[:2], 3))


class RecyclingEmbedding(nn.Module):
    """Recycling (Algorithm 32): layer norms of the last cycle's first row and pairs, and distances between its Cβ in 15
    bins. DISCREPANCY: bins are those of the released code, 3.25 to 20.75 Å."""

    def __init__(self, width: int, pair_width: int):
        super().__init__()
        self.norm, self.pair_norm = LayerNorm(width), LayerNorm(pair_width)
        self.distances = nn.Linear(RECYCLE_BINS, pair_width)

    def forward(self, m: Tensor, z: Tensor, recycled: Recycled) -> tuple[Tensor, Tensor]:
        """Add the outputs of the last cycle to the alignment (B, S, L, C) and the pairs (B, L, L, K)."""
        distances = (recycled.beta.unsqueeze(2) - recycled.beta.unsqueeze(1)).norm(dim=-1)
        bins = encode_distances(distances, RECYCLE_FIRST, RECYCLE_LAST, RECYCLE_BINS)
        m = torch.cat((m[:, :1] + self.norm(recycled.first_row).unsqueeze(1), m[:, 1:]), dim=1)
        return m, z + self.pair_norm(recycled.pairs) + self.distances(bins)


class TemplateEmbedding(nn.Module):
    """Templates (Algorithm 2, lines 7-13): their pairs, through a stack (Algorithm 16) and an attention over templates
    for each pair of residues (Algorithm 17), are added to the pairs; their torsion angles are rows of the alignment."""

    def __init__(self, width: int, pair_width: int, depth: int, sizes: PairSizes):
        super().__init__()
        self.project = nn.Linear(TEMPLATE_PAIR, sizes.width)
        self.layers = nn.ModuleList(build_pair_stack(depth, sizes))
        self.norm = LayerNorm(sizes.width)
        heads, head_width = sizes.heads, sizes.head_width
        qkv = CrossProjection(pair_width, heads, head_width, False, sizes.width, name="templates")
        self.attention = Attention(pair_width, heads, qkv=qkv, head_width=head_width)
        self.torsions = nn.Sequential(nn.Linear(TEMPLATE_TORSIONS, width), nn.ReLU(), nn.Linear(width, width))

    def embed_pairs(self, z: Tensor, pair_keep: Tensor | None, features: Features, ctx: Context) -> Tensor:
        """The update of the pairs (B, L, L, K)."""
        batch, count, length = features.template_pairs.shape[:3]
        t = self.project(features.template_pairs).flatten(0, 1)  # (B, T, L, L, W) -> (BT, L, L, W)
        keep = None if pair_keep is None else pair_keep.repeat_interleave(count, dim=0)
        for number, block in enumerate(self.layers):
            t = block(t, keep, ctx.at(number))
        t = self.norm(t).view(batch, count, length, length, t.shape[-1]).permute(0, 2, 3, 1, 4)  # (B, L, L, T, W)
        known = features.template_keep[:, None, None].expand(t.shape[:-1]).flatten(0, 2)  # (BLL, T)
        memory = Stream.of(t.flatten(0, 2), known)  # (BLL, T, W)
        update = self.attention(Stream.of(z.flatten(0, 2).unsqueeze(1)), Context({"templates": memory}))  # (BLL, 1, K)
        # A protein of a batch may have no templates at all, and the output projection has a bias.
        some = features.template_keep.any(1)[:, None, None, None]
        return update.view_as(z) * some

    def embed_torsions(self, features: Features) -> Tensor:
        """Further rows of the alignment: (B, T, L, C)."""
        return self.torsions(features.template_torsions)
