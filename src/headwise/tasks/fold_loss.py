"""Losses of AlphaFold 2 (Jumper et al. 2021, supplement, section 1.9, equation 7):

    L = 0.5 FAPE + 0.5 aux + 0.3 distogram + 2 masked MSA + 0.01 pLDDT    (fine-tuning: + 0.01 resolved + violations)

FAPE, the frame aligned point error, sees every point from every frame. It needs no superposition, is 0 at the truth and
not for its mirror image. All losses are means over what is known of a chain: (B,).

Letters: B chains, L residues, F frames, P points, N layers of the structure module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.config.base import Config, NonNegativeFloat
from headwise.models.folding_heads import DISTOGRAM_BINS, ERROR_BINS, ERROR_WIDTH, LDDT_BINS, Prediction
from headwise.proteins.distograms import DistanceBins
from headwise.proteins.features import IGNORE, Features, pad_stack
from headwise.proteins.frames import Frames
from headwise.proteins.metrics import score_pairs
from headwise.proteins.residues import CA, RESIDUE_INDEX, encode_sequence
from headwise.proteins.rigid_groups import (
    compute_torsions,
    find_group_frames,
    get_beta,
    get_tables,
    swap_symmetric_atoms,
    to_atom14,
)
from headwise.proteins.structure import Structure
from headwise.tasks.fold_violations import violation_loss

CLAMP, SCALE = 10.0, 10.0  # Å
ANGLE_NORM = 0.02  # weight of the length of torsion angles before they are normalised


class FoldWeights(Config):
    """Weights of the losses in the first training stage (equation 7); 0 leaves one out."""

    fape: NonNegativeFloat = 0.5
    aux: NonNegativeFloat = 0.5
    distogram: NonNegativeFloat = 0.3
    masked_msa: NonNegativeFloat = 2.0
    lddt: NonNegativeFloat = 0.01
    aligned_error: NonNegativeFloat = 0.0  # 0.1 in the models that predict it
    resolved: NonNegativeFloat = 0.0  # 0.01 in fine-tuning
    violation: NonNegativeFloat = 0.0  # 1 in fine-tuning


@dataclass(frozen=True, eq=False)
class Truth:
    """True structures of a padded batch."""

    residues: Tensor  # (B, L) residue types
    atoms: Tensor  # (B, L, 37, 3) in Å
    mask: Tensor  # (B, L, 37) True where an atom is known

    @classmethod
    def of(cls, structures: Sequence[Structure]) -> Truth:
        residues = [torch.tensor(encode_sequence(structure.sequence)) for structure in structures]
        padded = pad_stack(residues, RESIDUE_INDEX["X"])
        atoms, masks = ([getattr(structure, name) for structure in structures] for name in ("atoms", "mask"))
        return cls(padded, pad_stack(atoms), pad_stack(masks))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Truth:
        moved = (x.to(device, non_blocking=non_blocking) for x in (self.residues, self.atoms, self.mask))
        return Truth(*moved)


def fold_losses(
    prediction: Prediction, truth: Truth, features: Features, weights: FoldWeights, clamp: Tensor | None = None
) -> dict[str, Tensor]:
    """The losses of each chain by name, without weights: (B,) each; those of weight 0 are not computed. `clamp` (B,) is
    the largest distance that counts in the backbone's FAPE."""
    atoms = truth.atoms.to(prediction.lddt.dtype)
    truth = Truth(truth.residues, atoms, truth.mask & get_tables(atoms.device).mask37[truth.residues])
    losses: dict[str, Callable[[], Tensor]] = {
        "fape": lambda: side_chain_fape(prediction, truth),
        "aux": lambda: auxiliary_loss(prediction, truth, clamp),
        "distogram": lambda: distogram_loss(prediction.distogram, truth),
        "masked_msa": lambda: masked_msa_loss(prediction.masked_msa, features.labels),
        "lddt": lambda: lddt_loss(prediction, truth),
        "aligned_error": lambda: aligned_error_loss(prediction, truth),
        "resolved": lambda: resolved_loss(prediction.resolved, truth, features.keep),
        "violation": lambda: violation_loss(prediction.chain.atoms, truth.residues, features.positions, features.keep),
    }
    return {name: compute() for name, compute in losses.items() if getattr(weights, name)}


def weigh_losses(losses: dict[str, Tensor], weights: FoldWeights) -> Tensor:
    """The weighted sum of the losses of each chain: (B,)."""
    return torch.stack([getattr(weights, name) * loss for name, loss in losses.items()]).sum(0)


def mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean over all axes but the first where `mask` is True, 0 where it is nowhere: (B, ...) -> (B,)."""
    weights = mask.expand_as(x).to(x.dtype).flatten(1)
    return (x.flatten(1) * weights).sum(1) / weights.sum(1).clamp(min=1)


def compute_fape(
    frames: Frames,
    points: Tensor,
    true_frames: Frames,
    true_points: Tensor,
    clamp: Tensor | None = None,
    eps: float = 1e-4,
) -> Tensor:
    """Frame aligned point error (FAPE, Algorithm 28): min(clamp, |T_i^-1 x_j - T_i*^-1 x_j*|) / 10 Å of every point in
    every frame, frames (..., F) and points (..., P, 3) -> (..., F, P)."""
    local = frames.unsqueeze(-1).apply_inverse(points.unsqueeze(-3))  # (..., F, P, 3)
    true_local = true_frames.unsqueeze(-1).apply_inverse(true_points.unsqueeze(-3))
    distances = ((local - true_local).square().sum(-1) + eps).sqrt()
    limit = distances.new_tensor(CLAMP) if clamp is None else clamp[:, None, None]
    return torch.minimum(distances, limit) / SCALE


def auxiliary_loss(prediction: Prediction, truth: Truth, clamp: Tensor | None = None) -> Tensor:
    """The loss of every layer of the structure module, averaged (Algorithm 20, line 17): FAPE of Cα in backbone frames,
    and torsion angles."""
    chain, (frames, _, known) = prediction.chain, find_group_frames(truth.atoms, truth.mask, truth.residues)
    backbone, calpha = known[..., 0], truth.mask[..., CA]
    fape = compute_fape(
        chain.backbones, chain.backbones.translations, frames[..., 0], truth.atoms[..., CA, :], clamp, eps=1e-12
    )  # (N, B, L, L)
    seen = backbone.unsqueeze(-1) & calpha.unsqueeze(-2)  # (B, L, L)
    return mean(fape.transpose(0, 1), seen.unsqueeze(1)) + torsion_loss(prediction, truth)


def torsion_loss(prediction: Prediction, truth: Truth) -> Tensor:
    """Loss of the torsion angles (Algorithm 27): their squared distance on the unit circle, for the better of two names
    of symmetric atoms, and their length before they are normalised."""
    angles, alternative, known = compute_torsions(truth.atoms, truth.mask, truth.residues)
    torsions, raw = prediction.chain.torsions, prediction.chain.raw_torsions  # (N, B, L, 7, 2)
    errors = torch.minimum((torsions - angles).square().sum(-1), (torsions - alternative).square().sum(-1))
    real = truth.mask.any(-1)[:, None, :, None]  # (B, 1, L, 1)
    lengths = ((raw.square().sum(-1) + 1e-12).sqrt() - 1).abs()
    return mean(errors.transpose(0, 1), known.unsqueeze(1)) + ANGLE_NORM * mean(lengths.transpose(0, 1), real)


def side_chain_fape(prediction: Prediction, truth: Truth) -> Tensor:
    """FAPE of all atoms in the frames of all rigid groups (Algorithm 20, line 28)."""
    chain, residues = prediction.chain, truth.residues
    frames, other_frames, known = find_group_frames(truth.atoms, truth.mask, residues)
    atoms, there = to_atom14(truth.atoms, truth.mask, residues)  # (B, L, 14, 3)
    swapped = choose_names(chain.atoms, atoms, there, residues)  # (B, L)
    atoms = torch.where(swapped[..., None, None], swap_symmetric_atoms(atoms, residues), atoms)
    partners = swap_symmetric_atoms(there.unsqueeze(-1), residues).squeeze(-1)
    there = torch.where(swapped.unsqueeze(-1), partners, there)
    rotations = torch.where(swapped[..., None, None, None], other_frames.rotations, frames.rotations)
    true_frames = Frames(rotations.flatten(1, 2), frames.translations.flatten(1, 2))  # (B, 8L)
    predicted = Frames(chain.frames.rotations.flatten(1, 2), chain.frames.translations.flatten(1, 2))
    errors = compute_fape(predicted, chain.atoms.flatten(1, 2), true_frames, atoms.flatten(1, 2))  # (B, 8L, 14L)
    return mean(errors, known.flatten(1).unsqueeze(-1) & there.flatten(1).unsqueeze(-2))


@torch.no_grad()
def choose_names(predicted: Tensor, true: Tensor, there: Tensor, residues: Tensor) -> Tensor:
    """Whether the true atoms of a residue fit the prediction better with the names of symmetric atoms exchanged
    (Algorithm 26), by distances to atoms with one name: atom14 (B, L, 14, 3) -> (B, L)."""
    tables = get_tables(predicted.device)
    symmetric = tables.swap14[residues] != torch.arange(there.shape[-1], device=predicted.device)  # (B, L, 14)
    fixed = (there & ~symmetric).flatten(1)  # (B, 14L)

    def measure(atoms: Tensor, anchors: Tensor) -> Tensor:
        return torch.cdist(atoms.flatten(1, 2), anchors.flatten(1, 2))  # (B, 14L, 14L)

    current, errors = measure(predicted, predicted), []
    for names in (true, swap_symmetric_atoms(true, residues)):
        change = (current - measure(names, true)).abs() * fixed.unsqueeze(1)
        by_atom = change.sum(-1).view_as(there) * (there & symmetric)
        errors.append(by_atom.sum(-1))
    return errors[1] < errors[0]


def distogram_loss(logits: Tensor, truth: Truth) -> Tensor:
    """Cross-entropy of the distances between Cβ in 64 bins from 2 to 22 Å (section 1.9.8)."""
    beta, known = get_beta(truth.atoms, truth.residues), get_beta(truth.mask.unsqueeze(-1), truth.residues).squeeze(-1)
    labels = DistanceBins(DISTOGRAM_BINS).assign(torch.cdist(beta, beta))
    return mean(classify(logits, labels), known.unsqueeze(1) & known.unsqueeze(2))


def masked_msa_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the masked residues of the alignment (section 1.9.9)."""
    return mean(classify(logits, labels.clamp(min=0)), labels != IGNORE)


def lddt_loss(prediction: Prediction, truth: Truth) -> Tensor:
    """Cross-entropy of the lDDT of Cα that the prediction has, in 50 bins (Algorithm 29)."""
    known = truth.mask[..., CA]
    scores = measure_lddt(prediction.chain.backbones.translations[-1], truth)  # (B, L)
    labels = (scores * LDDT_BINS).long().clamp(0, LDDT_BINS - 1)
    return mean(classify(prediction.lddt, labels), known)


@torch.no_grad()
def measure_lddt(calpha: Tensor, truth: Truth) -> Tensor:
    """lDDT of Cα of each residue, 0 .. 1, and 0 where it is unknown: (B, L, 3) -> (B, L)."""
    known = truth.mask[..., CA]
    scores = torch.zeros_like(calpha[..., 0])
    numbers = torch.arange(known.shape[1], device=calpha.device)
    for number, rows in enumerate(known):
        preserved, pairs = score_pairs(calpha[number], truth.atoms[number, :, CA].to(calpha.dtype), numbers)
        both = rows & rows.unsqueeze(1)
        scores[number] = (preserved * both).sum(1) / (pairs & both).sum(1).clamp(min=1)
    return scores


def aligned_error_loss(prediction: Prediction, truth: Truth) -> Tensor:
    """Cross-entropy of the aligned error of each pair of residues, in 64 bins of 0.5 Å (section 1.9.7)."""
    frames, _, known = find_group_frames(truth.atoms, truth.mask, truth.residues)
    with torch.no_grad():
        chain = prediction.chain.backbones[-1]
        far = chain.translations.new_full((len(known),), torch.inf)
        errors = SCALE * compute_fape(chain, chain.translations, frames[..., 0], truth.atoms[..., CA, :], far)
        labels = (errors / ERROR_WIDTH).long().clamp(max=ERROR_BINS - 1)  # (B, L, L)
    both = known[..., 0].unsqueeze(2) & truth.mask[..., CA].unsqueeze(1)
    return mean(classify(prediction.aligned_error, labels), both)


def resolved_loss(logits: Tensor, truth: Truth, keep: Tensor) -> Tensor:
    """Binary cross-entropy of whether an atom was resolved by the experiment (section 1.9.10)."""
    exists = get_tables(logits.device).mask37[truth.residues] & keep.unsqueeze(-1)
    return mean(F.binary_cross_entropy_with_logits(logits, truth.mask.to(logits.dtype), reduction="none"), exists)


def classify(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each label: (..., K) and (...) -> (...)."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none").view_as(labels)
