"""Generated chains: compact folds of helices, strands and turns with ideal geometry, and alignments of sequences that
co-vary where residues touch. Everything is known: torsions, coordinates, secondary structure, contacts.

A *fold family* is a plan of secondary structure and the torsions of its loops, chosen among many for a compact chain
without clashes. Its members are alignments on this backbone: sequences drawn by Gibbs sampling from a Potts model. Its
fields prefer residues by secondary structure and burial; its couplings, at contacts, are the same in all families, so
that what is learnt on some folds holds on others. These chains are synthetic: nothing is claimed about real proteins.

Letters: L residues, K candidates, R rows of the alignment, 20 residue types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from headwise.proteins.alignments import AlignedChain, Alignment
from headwise.proteins.metrics import CONTACT, compute_distances, find_contacts
from headwise.proteins.residues import GAP_INDEX, RESIDUES, decode_sequence
from headwise.proteins.secondary import COIL, HELIX, STRAND
from headwise.proteins.torsions import TRANS, build_backbone, to_structure

ELEMENTS = {HELIX: (9, 17), STRAND: (5, 9), COIL: (3, 6)}  # residues of an element, at least and at most
TORSIONS = {HELIX: (-62.0, -43.0), STRAND: (-120.0, 132.0)}  # φ and ψ in degrees
# Basins of loops in the Ramachandran plot: right- and left-handed helix, strand, polyproline.
LOOP_BASINS = ((-62.0, -43.0), (57.0, 40.0), (-120.0, 132.0), (-65.0, 145.0))
CLASSES = ((HELIX,), (STRAND,), (STRAND, HELIX))  # elements that a family takes in turn: all-α, all-β, α/β
CLASH = 4.0  # Å between Cα that are not neighbours
PREFERRED = {HELIX: "AELMQKR", STRAND: "VIYFWTC", COIL: "GPNDS"}  # residues by secondary structure
HYDROPHOBIC, POSITIVE, NEGATIVE, POLAR = "AVILMFWC", "KR", "DE", "STNQHY"


@dataclass(frozen=True)
class ChainSettings:
    """How chains are generated; equal settings give equal chains."""

    min_length: int = 40
    max_length: int = 64
    rows: int = 64  # of the alignment, the query included
    coupling: float = 1.6  # strength of the co-variation at contacts
    gaps: float = 0.05  # share of gaps in the rows under the query, in runs
    candidates: int = 32  # loops that are tried at a time
    rounds: int = 32
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Fold:
    """The backbone of a fold family."""

    secondary: str  # L states: H, E, C
    torsions: Tensor  # (L, 3): φ, ψ, ω in radians
    points: Tensor  # (L, 5, 3): N, Cα, C, Cβ, O


@dataclass(frozen=True, eq=False)
class GeneratedChain(AlignedChain):
    """A member of a fold family: the query's structure and its alignment."""

    torsions: Tensor  # (L, 3): φ, ψ, ω in radians
    family: int

    @property
    def contacts(self) -> Tensor:
        """Pairs of residues whose Cβ are within 8 Å, (L, L)."""
        return find_contacts(self.structure)[0]


DEFAULT = ChainSettings()


def generate_chain(family: int, member: int = 0, settings: ChainSettings = DEFAULT) -> GeneratedChain:
    """A member of a fold family. Families are numbered from 0 without end: hold out some numbers, and their folds are
    held out; members of a family differ in their sequences."""
    fold = build_fold(family, settings)
    source = torch.Generator().manual_seed(_mix(settings.seed, family, member + 1))
    sequences = sample_sequences(fold, settings, source)
    rows = add_gaps(sequences, settings.gaps, source)
    query = decode_sequence(rows[0].tolist())
    alignment = Alignment(rows, torch.zeros_like(rows))
    return GeneratedChain(to_structure(query, fold.points), alignment, fold.secondary, fold.torsions, family)


@lru_cache(maxsize=512)
def build_fold(family: int, settings: ChainSettings = DEFAULT) -> Fold:
    """The backbone of a family: of many loops, those that make the chain compact without clashes."""
    random = np.random.default_rng((settings.seed, family))
    secondary = plan_secondary(family, settings, random)
    source = torch.Generator().manual_seed(_mix(settings.seed, family, 0))
    length = len(secondary)
    loops = torch.tensor([state == COIL for state in secondary])
    best = _draw_torsions(secondary, loops, settings.candidates, source)  # (K, L, 2)
    for attempt in range(settings.rounds):
        points = build_backbone(best[..., 0], best[..., 1], torch.full((len(best), length), TRANS))
        keep = best[score_folds(points).argmax()]
        if attempt == settings.rounds - 1:
            break
        # New torsions for one loop at a time, and small changes of all; the best one stays.
        fresh = _draw_torsions(secondary, loops, settings.candidates, source)
        changed = _choose_loops(secondary, settings.candidates, source)
        wiggle = 0.15 * torch.randn(fresh.shape, generator=source) * loops.unsqueeze(-1)
        best = torch.where(changed.unsqueeze(-1), fresh, keep + wiggle)
        best[0] = keep
    omega = torch.full((length,), TRANS)
    torsions = torch.cat([keep, omega.unsqueeze(-1)], dim=-1)
    return Fold(secondary, torsions, build_backbone(keep[:, 0], keep[:, 1], omega))


def plan_secondary(family: int, settings: ChainSettings, random: np.random.Generator) -> str:
    """Helices or strands with loops between them, up to a length that is drawn."""
    length = int(random.integers(settings.min_length, settings.max_length + 1))
    kinds = CLASSES[family % len(CLASSES)]
    parts = [COIL * 2]
    number = int(random.integers(len(kinds)))
    while sum(map(len, parts)) < length:
        low, high = ELEMENTS[kinds[number % len(kinds)]]
        parts.append(kinds[number % len(kinds)] * int(random.integers(low, high + 1)))
        low, high = ELEMENTS[COIL]
        parts.append(COIL * int(random.integers(low, high + 1)))
        number += 1
    return "".join(parts)[: length - 2] + COIL * 2


def score_folds(points: Tensor) -> Tensor:
    """Contacts of residues far apart in the sequence, less clashes and the radius of gyration: (K, L, 5, 3) -> (K,)."""
    alpha, beta = points[..., 1, :], points[..., 3, :]
    places = torch.arange(points.shape[-3])
    apart = (places[:, None] - places).abs()
    touching = ((compute_distances(beta) < CONTACT) & (apart >= 6)).sum((-1, -2)) / 2
    clashing = ((compute_distances(alpha) < CLASH) & (apart >= 3)).sum((-1, -2)) / 2
    # Cβ and O, which stand off the trace, need less room
    side = points[..., [3, 4], :].flatten(-3, -2)
    owner = places.repeat_interleave(2)
    bumping = ((compute_distances(side) < 3.0) & ((owner[:, None] - owner).abs() >= 2)).sum((-1, -2)) / 2
    radius = (alpha - alpha.mean(-2, keepdim=True)).square().sum(-1).mean(-1).sqrt()
    return touching - 10 * clashing - 5 * bumping - 6 * radius


def sample_sequences(fold: Fold, settings: ChainSettings, source: torch.Generator, sweeps: int = 12) -> Tensor:
    """Sequences of the fold's Potts model by Gibbs sampling, (R, L): each sweep draws every residue anew, given the
    residues that it touches."""
    distances = compute_distances(fold.points[:, 3])
    length = len(fold.secondary)
    places = torch.arange(length)
    contacts = (distances < CONTACT) & ((places[:, None] - places).abs() >= 4)
    fields = make_fields(fold.secondary, (distances < 10).sum(-1))  # (L, 20)
    couplings = settings.coupling * make_couplings()  # (20, 20)
    rows = torch.multinomial(fields.softmax(-1), settings.rows, replacement=True, generator=source).T.contiguous()
    neighbours = [contacts[place].nonzero().flatten() for place in range(length)]
    for _ in range(sweeps):
        for place in range(length):
            logits = fields[place] + couplings[rows[:, neighbours[place]]].sum(1)  # (R, n, 20) -> (R, 20)
            rows[:, place] = torch.multinomial(logits.softmax(-1), 1, generator=source).squeeze(-1)
    return rows


def make_fields(secondary: str, neighbours: Tensor) -> Tensor:
    """Preferences of each place for residue types, (L, 20): by its secondary structure, and for hydrophobic residues
    where it has many neighbours, polar ones where few."""
    burial = (neighbours.float() - neighbours.float().mean()) / neighbours.float().std().clamp(min=1e-6)  # (L,)
    preferred = torch.tensor([[letter in PREFERRED[state] for letter in RESIDUES] for state in secondary]).float()
    hydrophobic = torch.tensor([1.0 if letter in HYDROPHOBIC else -0.5 for letter in RESIDUES])
    return preferred + 0.7 * burial.unsqueeze(-1) * hydrophobic


@lru_cache(maxsize=1)
def make_couplings() -> Tensor:
    """The pairwise log-odds of residues in contact, (20, 20): opposite charges and hydrophobic residues attract, equal
    charges repel, cysteines pair; and, in each group, partners of their own, so that a substitution at one place asks
    for one at the other. Rows have a mean of zero."""
    groups = [next((n for n, g in enumerate((HYDROPHOBIC, POSITIVE, NEGATIVE, POLAR)) if x in g), 4) for x in RESIDUES]
    between = torch.tensor(
        [
            [0.3, -0.4, -0.4, -0.2, 0.0],
            [-0.4, -0.8, 0.9, 0.1, 0.0],
            [-0.4, 0.9, -0.8, 0.1, 0.0],
            [-0.2, 0.1, 0.1, 0.2, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.1],
        ]
    )
    index = torch.tensor(groups)
    own = torch.randn(20, 20, generator=torch.Generator().manual_seed(20)) * 0.6
    couplings = between[index][:, index] + (own + own.T) / math.sqrt(2)
    couplings.fill_diagonal_(-0.8)  # else all places of a row would take the same residue
    cysteine = RESIDUES.index("C")
    couplings[cysteine, cysteine] = 1.5
    return couplings - couplings.mean(0, keepdim=True) - couplings.mean(1, keepdim=True) + couplings.mean()


def add_gaps(sequences: Tensor, share: float, source: torch.Generator) -> Tensor:
    """Put runs of gaps into the rows under the query: about this share of them."""
    rows, (count, length) = sequences.clone(), sequences.shape
    if share <= 0:
        return rows
    run = max(2, length // 8)
    starts = torch.rand(count, length, generator=source) < share / run
    places = torch.arange(length)
    for row, start in starts[1:].nonzero().tolist():
        rows[row + 1, (places >= start) & (places < start + run)] = GAP_INDEX
    return rows


def _draw_torsions(secondary: str, loops: Tensor, count: int, source: torch.Generator) -> Tensor:
    """φ and ψ of candidates, (K, L, 2): ideal elements, loops from the basins."""
    basins = torch.tensor(LOOP_BASINS)
    chosen = torch.randint(len(basins), (count, len(secondary)), generator=source)
    ideal = torch.tensor([TORSIONS.get(state, (0.0, 0.0)) for state in secondary])
    noise = 12 * torch.randn(count, len(secondary), 2, generator=source)
    degrees = torch.where(loops.unsqueeze(-1), basins[chosen] + noise, ideal + 0.15 * noise)
    return degrees.deg2rad()


def _choose_loops(secondary: str, count: int, source: torch.Generator) -> Tensor:
    """For each candidate the residues of one loop, (K, L)."""
    numbers, number = [], 0
    for place, state in enumerate(secondary):
        number += state == COIL and (place == 0 or secondary[place - 1] != COIL)
        numbers.append(number if state == COIL else 0)
    chosen = torch.randint(1, number + 1, (count, 1), generator=source)
    return torch.tensor(numbers) == chosen


def _mix(*numbers: int) -> int:
    """One seed out of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
