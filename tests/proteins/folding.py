"""Small chains and alignments for tests of folding."""

import math

import torch

from headwise.proteins.alignments import Alignment
from headwise.proteins.features import Features, MsaSettings, build_features, collate_features
from headwise.proteins.frames import Frames, rotation_from_quaternion
from headwise.proteins.residues import RESIDUES, encode_sequence
from headwise.proteins.rigid_groups import compute_group_frames, place_atoms, to_atom37
from headwise.proteins.structure import Structure

SETTINGS = MsaSettings(clusters=4, extra=5)


def make_chain(length: int = 10, seed: int = 0) -> Structure:
    """A helix of 100 degrees and 1.5 Å a residue with random residues and side chains."""
    draw = torch.Generator().manual_seed(seed)
    residues = torch.randint(0, 20, (length,), generator=draw)
    angles = torch.arange(length, dtype=torch.float64) * math.radians(100)
    turns = torch.zeros(length, 3, 3, dtype=torch.float64)
    turns[:, 0, 0] = turns[:, 1, 1] = angles.cos()
    turns[:, 1, 0], turns[:, 0, 1], turns[:, 2, 2] = angles.sin(), -angles.sin(), 1.0
    shifts = torch.zeros(length, 3, dtype=torch.float64)
    shifts[:, 2] = 1.5 * torch.arange(length)
    place = Frames(
        rotation_from_quaternion(torch.tensor([0.3, -0.2, 0.5]).double()), torch.tensor([2.3, 0, 0]).double()
    )
    torsions = 2 * math.pi * torch.rand(length, 7, generator=draw, dtype=torch.float64)
    backbone = Frames(turns, shifts).compose(
        Frames(place.rotations.expand(length, 3, 3), place.translations.expand(length, 3))
    )
    frames = compute_group_frames(backbone, torch.stack((torsions.sin(), torsions.cos()), -1), residues)
    atoms, mask = to_atom37(place_atoms(frames, residues), residues)
    sequence = "".join(RESIDUES[index] for index in residues)
    return Structure(sequence, atoms.float(), mask)


def make_alignment(chain: Structure, rows: int = 12, seed: int = 0) -> Alignment:
    """The query, and rows in which a third of its residues are changed, gaps included."""
    draw = torch.Generator().manual_seed(seed)
    query = torch.tensor(encode_sequence(chain.sequence))
    others = torch.randint(0, 22, (rows - 1, len(chain)), generator=draw)
    changed = torch.rand(rows - 1, len(chain), generator=draw) < 0.3
    table = torch.cat((query.unsqueeze(0), torch.where(changed, others, query)))
    deletions = torch.randint(0, 3, table.shape, generator=draw)
    deletions[0] = 0
    return Alignment(table, deletions)


def make_features(
    *lengths: int, templates: int = 1, mask: bool = True, **settings: int
) -> tuple[Features, list[Structure]]:
    """A batch of chains of these lengths, and their structures; in float64."""
    chains = [make_chain(length, seed) for seed, length in enumerate(lengths)]
    draw = torch.Generator().manual_seed(5)
    examples = [
        build_features(
            make_alignment(chain), MsaSettings(**{**vars(SETTINGS), **settings}), draw,
            templates=[make_chain(len(chain), 9 + number) for number in range(templates)], mask=mask,
        )
        for chain in chains
    ]  # fmt: skip
    return collate_features(examples).to(torch.float64), chains
