"""Features of AlphaFold 2 (Jumper et al. 2021, supplement, section 1.2): sequence, clustered and masked alignment,
extra alignment, templates; random crops; batches.

An alignment is sampled anew for each example. Of its rows some are centres of clusters, the query always the first;
15 % of their residues are masked, to be predicted. All other rows belong to the centre that they agree with most, and
give its profile; a sample of them is the extra alignment.

DISCREPANCY: outside of training nothing is masked here, and all cycles of recycling see one sample; the released code
masks in inference, too, and samples anew for each cycle.

Letters: B chains, L residues, N rows of an alignment, S clusters, E extra rows, T templates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.errors import UserError
from headwise.proteins.alignments import Alignment
from headwise.proteins.residues import GAP_INDEX, RESIDUES, UNKNOWN_INDEX
from headwise.proteins.structure import Structure
from headwise.proteins.templates import TEMPLATE_PAIR, TEMPLATE_TORSIONS, build_template_features

MASK_INDEX = GAP_INDEX + 1  # 22: a masked residue
ALIGNMENT_CLASSES = MASK_INDEX + 1  # residue types, unknown, gap, mask
MSA_FEATURES = 2 * ALIGNMENT_CLASSES + 3  # residue, profile of the cluster, two of deletions, their mean
EXTRA_FEATURES = ALIGNMENT_CLASSES + 2
RESIDUE_CLASSES = UNKNOWN_INDEX + 1
IGNORE = -100  # label of a residue that is not masked


@dataclass(frozen=True)
class MsaSettings:
    """How many rows a model reads, and how they are masked."""

    clusters: int = 128
    extra: int = 1024
    masked: float = 0.15  # share of residues of cluster centres
    # what a masked residue becomes: any type, one of the column's profile, itself; else the mask
    uniform: float = 0.1
    profile: float = 0.1
    same: float = 0.1


@dataclass(frozen=True, eq=False)
class Features:
    """What a model of structures reads: one chain without B, or a padded batch."""

    residues: Tensor  # (B, L) residue types
    positions: Tensor  # (B, L) numbers of residues in the chain
    keep: Tensor  # (B, L) True = a residue, no padding
    msa: Tensor  # (B, S, L, 49)
    msa_keep: Tensor  # (B, S, L)
    extra: Tensor  # (B, E, L, 25)
    extra_keep: Tensor  # (B, E, L)
    template_pairs: Tensor  # (B, T, L, L, 88)
    template_torsions: Tensor  # (B, T, L, 57)
    template_keep: Tensor  # (B, T)
    labels: Tensor  # (B, S, L) residue types of masked places, IGNORE elsewhere

    def to(self, *arguments: torch.device | str | torch.dtype, non_blocking: bool = False) -> Features:
        """On a device; a floating-point type applies to vectors alone."""
        moved = {}
        for field in fields(self):
            tensor = getattr(self, field.name)
            types = [a for a in arguments if not isinstance(a, torch.dtype) or tensor.is_floating_point()]
            moved[field.name] = tensor.to(*types, non_blocking=non_blocking) if types else tensor
        return Features(**moved)


def build_features(
    alignment: Alignment,
    settings: MsaSettings,
    generator: torch.Generator | None = None,
    *,
    templates: Sequence[Structure] = (),
    start: int = 0,
    mask: bool = False,
) -> Features:
    """The features of one chain, the query of `alignment`, whose residues are numbered from `start`. With `mask`,
    residues are masked for the masked MSA loss. Templates are aligned structures of the same length."""
    length = alignment.length
    for template in templates:
        if len(template) != length:
            raise UserError(f"a template has {len(template)} residues and the query {length}; align it first")
    order = torch.randperm(len(alignment) - 1, generator=generator) + 1
    chosen = torch.cat((torch.zeros(1, dtype=torch.long), order[: settings.clusters - 1]))
    rest = order[settings.clusters - 1 :]
    centres, labels = alignment.rows[chosen], torch.full((len(chosen), length), IGNORE)
    if mask:
        centres, labels = mask_msa(centres, alignment.compute_profile(), settings, generator)
    profile, deletions = summarise_clusters(centres, alignment.deletions[chosen], alignment, rest)
    msa = torch.cat(
        (encode_rows(centres, alignment.deletions[chosen]), profile, scale_deletions(deletions).unsqueeze(-1)), dim=-1
    )
    extra = rest[: settings.extra]
    pairs, torsions = build_template_features(templates, length)
    return Features(
        residues=alignment.rows[0].clamp(max=UNKNOWN_INDEX),
        positions=torch.arange(start, start + length),
        keep=torch.ones(length, dtype=torch.bool),
        msa=msa,
        msa_keep=torch.ones(len(chosen), length, dtype=torch.bool),
        extra=encode_rows(alignment.rows[extra], alignment.deletions[extra]),
        extra_keep=torch.ones(len(extra), length, dtype=torch.bool),
        template_pairs=pairs,
        template_torsions=torsions,
        template_keep=torch.ones(len(templates), dtype=torch.bool),
        labels=labels,
    )


def mask_msa(
    rows: Tensor, profile: Tensor, settings: MsaSettings, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Mask rows (S, L) for the masked MSA loss (section 1.2.7, item 2), as BERT does: the rows that the model reads and
    the labels of what it shall predict. `profile` (L, 22) are the shares of residues in each column."""
    hidden = torch.rand(rows.shape, generator=generator) < settings.masked
    shares = torch.zeros(*rows.shape, ALIGNMENT_CLASSES)
    shares[..., : len(RESIDUES)] = settings.uniform / len(RESIDUES)
    shares[..., : profile.shape[-1]] += settings.profile * profile
    shares += settings.same * F.one_hot(rows, ALIGNMENT_CLASSES)
    shares[..., MASK_INDEX] += 1 - settings.uniform - settings.profile - settings.same
    drawn = torch.multinomial(shares.flatten(0, 1), 1, generator=generator).view_as(rows)
    return torch.where(hidden, drawn, rows), torch.where(hidden, rows, IGNORE)


def assign_clusters(centres: Tensor, rows: Tensor) -> Tensor:
    """The cluster of each row: the centre that agrees with it in most residues, gaps and masks not counted (section
    1.2.7, item 3): (S, L) and (N, L) -> (N,)."""
    one_hot = F.one_hot(centres, ALIGNMENT_CLASSES)[..., :GAP_INDEX].float().flatten(1)  # (S, 21 L)
    others = F.one_hot(rows, ALIGNMENT_CLASSES)[..., :GAP_INDEX].float().flatten(1)
    return (others @ one_hot.T).argmax(1)


def summarise_clusters(centres: Tensor, deletions: Tensor, alignment: Alignment, rest: Tensor) -> tuple[Tensor, Tensor]:
    """The profile (S, L, 23) and the mean deletions (S, L) of each cluster, its centre as it is masked (section 1.2.7,
    item 4)."""
    profile = F.one_hot(centres, ALIGNMENT_CLASSES).float()
    total, members = deletions.float(), torch.ones(len(centres))
    if len(rest):
        rows, cluster = alignment.rows[rest], assign_clusters(centres, alignment.rows[rest])
        profile = profile.index_add(0, cluster, F.one_hot(rows, ALIGNMENT_CLASSES).float())
        total = total.index_add(0, cluster, alignment.deletions[rest].float())
        members = members.index_add(0, cluster, torch.ones(len(rest)))
    return profile / members[:, None, None], total / members[:, None]


def encode_rows(rows: Tensor, deletions: Tensor) -> Tensor:
    """Rows (N, L) as vectors (N, L, 25): the residue, whether something is left out before it, and how much."""
    has_deletion = (deletions > 0).float()
    encoded = F.one_hot(rows, ALIGNMENT_CLASSES).float()
    return torch.cat((encoded, torch.stack((has_deletion, scale_deletions(deletions)), dim=-1)), dim=-1)


def scale_deletions(deletions: Tensor) -> Tensor:
    """Numbers of deletions in 0 .. 1: 2/pi arctan(d / 3)."""
    return (deletions.float() / 3).atan() * (2 / math.pi)


def crop_chain(
    structure: Structure, alignment: Alignment, length: int, generator: torch.Generator | None = None
) -> tuple[Structure, Alignment, int]:
    """A random crop of `length` residues in a row (section 1.2.8), and where it starts."""
    if len(structure) <= length:
        return structure, alignment, 0
    start = int(torch.randint(len(structure) - length + 1, (), generator=generator))
    part = slice(start, start + length)
    rows, deletions = alignment.rows[:, part], alignment.deletions[:, part]
    return structure.select(part), Alignment(rows, deletions, alignment.names), start


PADDING = {"residues": UNKNOWN_INDEX, "labels": IGNORE}  # 0 elsewhere


def collate_features(examples: Sequence[Features]) -> Features:
    """One batch of several chains, padded on the right along every axis."""
    batch = {}
    for field in fields(Features):
        tensors = [getattr(example, field.name) for example in examples]
        batch[field.name] = pad_stack(tensors, PADDING.get(field.name, 0))
    return Features(**batch)


def pad_stack(tensors: Sequence[Tensor], value: int = 0) -> Tensor:
    """Stack tensors of different sizes, padded on the right along every axis."""
    shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
    stacked = tensors[0].new_full((len(tensors), *shape), value)
    for row, tensor in zip(stacked, tensors, strict=True):
        row[tuple(slice(size) for size in tensor.shape)] = tensor
    return stacked


def make_blank_features(
    rows: int, length: int, settings: MsaSettings, templates: int = 0, device: torch.device | str = "cpu"
) -> Features:
    """Features of zeros with all rows that the settings allow, to count a model's costs."""

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(rows, *shape, device=device)

    def whole(*shape: int) -> Tensor:
        return torch.zeros(rows, *shape, dtype=torch.long, device=device)

    def real(*shape: int) -> Tensor:
        return torch.ones(rows, *shape, dtype=torch.bool, device=device)

    clusters, extra = settings.clusters, settings.extra
    return Features(
        residues=whole(length),
        positions=whole(length),
        keep=real(length),
        msa=zeros(clusters, length, MSA_FEATURES),
        msa_keep=real(clusters, length),
        extra=zeros(extra, length, EXTRA_FEATURES),
        extra_keep=real(extra, length),
        template_pairs=zeros(templates, length, length, TEMPLATE_PAIR),
        template_torsions=zeros(templates, length, TEMPLATE_TORSIONS),
        template_keep=real(templates),
        labels=whole(clusters, length),
    )
