"""Features of pairs of residues out of an alignment: the query, its profile, and how columns co-vary.

DISCREPANCY: Senior et al. (2020) take the parameters of a Potts model that is fitted to each alignment by gradient
descent; here the covariance of the columns stands for its couplings.

Letters: N rows, L columns, A = 22 residue types with unknown and gap.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.proteins.alignments import Alignment
from headwise.proteins.residues import ALIGNMENT_TYPES, RESIDUE_TYPES

OFFSET_SCALE = 100.0
TYPES = len(ALIGNMENT_TYPES)
RESIDUE_CHANNELS = len(RESIDUE_TYPES) + TYPES  # query and profile
SCALAR_CHANNELS = 4  # place, offset, covariance norm, its average product correction


def count_channels(covariance: bool) -> int:
    """Channels of `build_pair_features`.

    >>> count_channels(False), count_channels(True)
    (90, 574)
    """
    return 2 * RESIDUE_CHANNELS + SCALAR_CHANNELS + TYPES * TYPES * covariance


def build_pair_features(alignment: Alignment, covariance: bool = False) -> Tensor:
    """A map of features, (channels, L, L): query and profile of both residues, place and offset in the sequence, the
    norm of the columns' covariance without and with average product correction, and, if asked for, all 22 x 22
    covariances."""
    length = alignment.length
    query = F.one_hot(alignment.rows[0], TYPES)[:, : len(RESIDUE_TYPES)].float()
    residues = torch.cat([query, alignment.compute_profile()], dim=-1)  # (L, 43)
    places = torch.arange(length) / OFFSET_SCALE
    covariances = compute_covariances(alignment)  # (L, L, A, A)
    norms = covariances[..., :-1, :-1].square().sum((-1, -2)).sqrt()  # without gaps
    maps = [
        residues[:, None].expand(-1, length, -1),
        residues.expand(length, -1, -1),
        (places[:, None] - 1).expand(-1, length).unsqueeze(-1),
        (places - places[:, None]).unsqueeze(-1),
        norms.unsqueeze(-1),
        scale_map(correct_average_product(norms)).unsqueeze(-1),
    ]
    if covariance:
        maps.append(covariances.flatten(-2))
    return torch.cat(maps, dim=-1).permute(2, 0, 1).contiguous()


def compute_covariances(alignment: Alignment) -> Tensor:
    """Covariances of residue types in all pairs of columns, (L, L, A, A)."""
    types = F.one_hot(alignment.rows, TYPES).float()  # (N, L, A)
    centred = (types - types.mean(0)).flatten(1)  # (N, LA)
    length = alignment.length
    return (centred.T @ centred / len(alignment)).view(length, TYPES, length, TYPES).transpose(1, 2)


def correct_average_product(scores: Tensor) -> Tensor:
    """Average product correction (Dunn et al. 2008) of scores of pairs, (L, L); the diagonal is zero."""
    scores = scores - torch.diag(scores.diagonal())
    mean = scores.sum(0) / max(1, len(scores) - 1)
    return (scores - mean[:, None] * mean / mean.mean().clamp(min=1e-9)).fill_diagonal_(0.0)


def scale_map(scores: Tensor) -> Tensor:
    """Scores divided by their standard deviation."""
    return scores / scores.std().clamp(min=1e-6) if scores.numel() > 1 else scores
