"""Template features of AlphaFold 2 (Jumper et al. 2021, supplement, section 1.7.1): distances, directions and torsion
angles of structures that are aligned with the query.

Letters: T templates, L residues.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.proteins.frames import normalise
from headwise.proteins.residues import CA, GAP_INDEX, C, N, encode_sequence
from headwise.proteins.rigid_groups import TORSIONS, compute_backbone_frames, compute_torsions, get_beta
from headwise.proteins.structure import Structure

BINS = 39  # of distances between Cβ, from 3.25 Å to 50.75 Å
FIRST, LAST = 3.25, 50.75
TYPES = GAP_INDEX + 1
TEMPLATE_PAIR = BINS + 1 + 2 * TYPES + 3 + 1  # distance, both known, both types, direction, both backbones known
TEMPLATE_TORSIONS = TYPES + 5 * TORSIONS  # type, angles, angles with symmetric atoms exchanged, known


def build_template_features(templates: Sequence[Structure], length: int) -> tuple[Tensor, Tensor]:
    """Features of pairs (T, L, L, 88) and of torsion angles (T, L, 57); T may be 0."""
    pairs = [encode_pairs(template) for template in templates]
    torsions = [encode_torsions(template) for template in templates]
    if not templates:
        return torch.zeros(0, length, length, TEMPLATE_PAIR), torch.zeros(0, length, TEMPLATE_TORSIONS)
    return torch.stack(pairs), torch.stack(torsions)


def encode_pairs(template: Structure) -> Tensor:
    """Pairs of residues in a template: (L, L, 88)."""
    residues, length = torch.tensor(encode_sequence(template.sequence)), len(template)
    beta, known = get_beta(template.atoms, residues), get_beta(template.mask.unsqueeze(-1), residues).squeeze(-1)
    bins = encode_distances(torch.cdist(beta, beta), FIRST, LAST, BINS)
    both = (known[:, None] & known[None]).float().unsqueeze(-1)  # (L, L, 1)
    backbone = template.mask[:, [N, CA, C]].all(-1)
    backbones = (backbone[:, None] & backbone[None]).float().unsqueeze(-1)
    frames = compute_backbone_frames(template.atoms)
    directions = normalise(frames.unsqueeze(-1).apply_inverse(frames.translations[None]))  # (L, L, 3)
    types = F.one_hot(residues, TYPES).float()
    columns, rows = types[None].expand(length, -1, -1), types[:, None].expand(-1, length, -1)
    return torch.cat((bins * both, both, columns, rows, directions * backbones, backbones), dim=-1)


def encode_torsions(template: Structure) -> Tensor:
    """Residues of a template with their torsion angles: (L, 57)."""
    residues = torch.tensor(encode_sequence(template.sequence))
    angles, alternative, known = compute_torsions(template.atoms, template.mask, residues)
    return torch.cat((F.one_hot(residues, TYPES), angles.flatten(1), alternative.flatten(1), known), dim=-1).float()


def encode_distances(distances: Tensor, first: float, last: float, bins: int) -> Tensor:
    """One-hot bins of distances (...) -> (..., bins): edges from `first` to `last`, and the last bin is open. Smaller
    distances are in none."""
    edges = torch.linspace(first, last, bins, device=distances.device, dtype=distances.dtype)
    above = distances.unsqueeze(-1) > edges
    below = F.pad(~above[..., 1:], (0, 1), value=True)
    return (above & below).to(distances.dtype)
