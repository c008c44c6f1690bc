"""From the atoms of a structure file to chains: alternate locations, insertion codes, modified and missing residues.

What the readers of PDB and mmCIF files have in common. Of a residue with alternate locations, the conformation with the
largest sum of occupancies is kept, the first one of equals, so that its atoms fit together; where the conformations are
different residues (microheterogeneity), that decides on the residue, too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from headwise.errors import UserError
from headwise.proteins.residues import ATOM_INDEX, ATOMS, ONE_LETTER, RESIDUE_ATOMS, UNKNOWN
from headwise.proteins.structure import Structure

CAPS = ("ACE", "FOR", "NH2", "NME")  # groups at the ends of a chain that are not amino acids
RENAMED = {"MSE": {"SE": "SD"}}  # atoms of modified residues that take the place of one of the parent's


@dataclass(frozen=True, slots=True)
class AtomSite:
    """One atom of a file."""

    chain: str
    number: str  # of the residue, with its insertion code
    residue: str  # name, such as ALA
    atom: str  # name, such as CA
    location: str  # alternate location; empty: the only one
    occupancy: float
    position: tuple[float, float, float]
    place: int = -1  # in the chain's full sequence, from 0; -1: the file does not say


@dataclass(frozen=True)
class Residue:
    """The conformation of a residue that is kept."""

    name: str
    number: str
    place: int
    positions: dict[str, tuple[float, float, float]]  # by atom

    @property
    def letter(self) -> str:
        return ONE_LETTER.get(self.name, UNKNOWN)

    @property
    def is_amino_acid(self) -> bool:
        return self.name in ONE_LETTER or all(atom in self.positions for atom in ("N", "CA", "C"))


def build_chains(
    sites: Iterable[AtomSite], sequences: Mapping[str, Sequence[str]], path: Path
) -> tuple[Structure, ...]:
    """The protein chains of a file, in its order. `sequences` has the residue names of each chain's full sequence,
    where the file has them: residues without coordinates are masked."""
    grouped: dict[str, dict[str, list[AtomSite]]] = {}
    for site in sites:
        grouped.setdefault(site.chain, {}).setdefault(site.number, []).append(site)
    chains = []
    for name, by_number in grouped.items():
        residues = [choose_conformation(atoms) for atoms in by_number.values()]
        residues = [residue for residue in residues if residue.is_amino_acid]
        if residues:
            sequence = [residue for residue in sequences.get(name, ()) if residue not in CAPS]
            chains.append(build_structure(residues, sequence, name))
    if not chains:
        raise UserError(f"{path}: has no chain of amino acids with coordinates; give a file of a protein's structure")
    return tuple(chains)


def choose_conformation(sites: Sequence[AtomSite]) -> Residue:
    """The conformation of a residue with the largest sum of occupancies; atoms without a location belong to all."""
    occupancy: dict[str, float] = defaultdict(float)
    for site in sites:
        if site.location:
            occupancy[site.location] += site.occupancy
    best = max(occupancy, key=lambda location: occupancy[location], default="")
    kept = [site for site in sites if site.location in ("", best)]
    positions: dict[str, tuple[float, float, float]] = {}
    for site in kept:
        positions.setdefault(site.atom, site.position)
    name = next(site.residue for site in kept if site.location == best)
    return Residue(name, sites[0].number, sites[0].place, positions)


def build_structure(residues: Sequence[Residue], sequence: Sequence[str], chain: str) -> Structure:
    """The chain of these residues, with the missing ones of its full sequence (residue names; empty: none missing)."""
    places = find_places(residues, sequence)
    letters = [ONE_LETTER.get(name, UNKNOWN) for name in sequence] if places else [each.letter for each in residues]
    numbers = [""] * len(letters)
    atoms = torch.zeros(len(letters), len(ATOMS), 3)
    mask = torch.zeros(len(letters), len(ATOMS), dtype=torch.bool)
    for place, residue in zip(places or range(len(residues)), residues, strict=True):
        letters[place], numbers[place] = residue.letter, residue.number
        allowed = (*RESIDUE_ATOMS[residue.letter], "OXT")
        for name, position in residue.positions.items():
            name = RENAMED.get(residue.name, {}).get(name, name)
            if name in allowed:
                atoms[place, ATOM_INDEX[name]] = torch.tensor(position)
                mask[place, ATOM_INDEX[name]] = True
    return Structure("".join(letters), atoms, mask, tuple(numbers), chain)


def find_places(residues: Sequence[Residue], sequence: Sequence[str]) -> list[int]:
    """The place of each residue in the full sequence; empty if the file does not say and they do not fit."""
    places = [residue.place for residue in residues]
    if sequence and all(0 <= place < len(sequence) for place in places) and len(set(places)) == len(places):
        return places
    return align_observed([residue.letter for residue in residues], sequence, find_bonds(residues))


def find_bonds(residues: Sequence[Residue]) -> list[bool]:
    """Whether each residue is bonded to the one before; the first one is not."""
    bonded = [False]
    for before, after in pairwise(residues):
        ends = before.positions.get("C"), after.positions.get("N")
        bonded.append(None not in ends and math.dist(*ends) < 2)  # type: ignore[arg-type]
    return bonded


def align_observed(observed: Sequence[str], sequence: Sequence[str], bonded: Sequence[bool]) -> list[int]:
    """Align observed residues to the full sequence (SEQRES) that they are a part of, by dynamic programming: every
    observed residue equals its partner, and as few bonds as possible are cut. Empty if there is no such alignment.

    >>> align_observed("GG", ["ALA", "GLY", "SER", "GLY", "GLY"], [False, True])
    [3, 4]
    """
    full = [ONE_LETTER.get(name, UNKNOWN) for name in sequence]
    slack = len(full) - len(observed)
    if slack < 0 or not observed:
        return []
    # cost[s]: cut bonds so far, if the present residue has s missing ones before it
    cost, choices = [0.0] * (slack + 1), []
    for index, letter in enumerate(observed):
        best, best_at = math.inf, 0
        reached, choice = [], []
        for missing in range(slack + 1):
            if cost[missing] < best:
                best, best_at = cost[missing], missing
            stay = cost[missing] <= best + bonded[index]
            total = cost[missing] if stay else best + bonded[index]
            fits = full[index + missing] == letter
            reached.append(total if fits else math.inf)
            choice.append(missing if stay else best_at)
        cost = reached
        choices.append(choice)
    end = min(range(slack + 1), key=lambda missing: cost[missing])
    if math.isinf(cost[end]):
        return []
    places = []
    for index in range(len(observed) - 1, -1, -1):
        places.append(index + end)
        end = choices[index][end]
    return places[::-1]
