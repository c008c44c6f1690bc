"""The structure of one protein chain: its sequence and the coordinates of its heavy atoms.

Letters: L residues, 37 atoms (`residues.ATOMS`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.proteins.residues import ATOMS, CA, CB, RESIDUE_TYPES, C, N

PEPTIDE_BOND = 1.329  # Å from C to the next N
MAX_PEPTIDE_BOND = 2.0  # Å; farther apart, two residues are not bonded


@dataclass(frozen=True, eq=False)
class Structure:
    """A chain of residues. A residue without coordinates has no atoms in `mask`; its coordinates are zeros.

    >>> chain = Structure("AG", torch.zeros(2, 37, 3), torch.zeros(2, 37, dtype=torch.bool))
    >>> len(chain), chain.residue_numbers, chain.chain
    (2, ('1', '2'), 'A')
    """

    sequence: str  # L letters of `residues.RESIDUE_TYPES`
    atoms: Tensor  # (L, 37, 3) float32, in Å
    mask: Tensor  # (L, 37) bool: True where the atom has coordinates
    residue_numbers: tuple[str, ...] = ()  # the file's numbers with their insertion codes, such as 52A; empty: 1 .. L
    chain: str = "A"

    def __post_init__(self) -> None:
        length = len(self.sequence)
        if not self.residue_numbers:
            object.__setattr__(self, "residue_numbers", tuple(str(number) for number in range(1, length + 1)))
        if self.atoms.shape != (length, len(ATOMS), 3) or self.mask.shape != (length, len(ATOMS)):
            shapes = f"{tuple(self.atoms.shape)} and {tuple(self.mask.shape)}"
            raise ValueError(f"{length} residues have atoms and mask of shapes {shapes}, not (L, 37, 3) and (L, 37)")
        if len(self.residue_numbers) != length:
            raise ValueError(f"{length} residues have {len(self.residue_numbers)} residue numbers")
        if strange := set(self.sequence) - set(RESIDUE_TYPES):
            raise ValueError(f"the sequence has {', '.join(sorted(strange))}; letters are {RESIDUE_TYPES}")

    def __len__(self) -> int:
        return len(self.sequence)

    def select(self, selection: slice) -> Structure:
        """The residues of a slice."""
        return replace(
            self,
            sequence=self.sequence[selection],
            atoms=self.atoms[selection],
            mask=self.mask[selection],
            residue_numbers=self.residue_numbers[selection],
        )

    def select_known(self, name: str = "CA") -> Structure:
        """The residues of which this atom is known."""
        rows = self.mask[:, ATOMS.index(name)].nonzero().flatten().tolist()
        sequence, numbers = ([side[row] for row in rows] for side in (self.sequence, self.residue_numbers))
        return Structure("".join(sequence), self.atoms[rows], self.mask[rows], tuple(numbers), self.chain)

    def get_atoms(self, name: str) -> tuple[Tensor, Tensor]:
        """The coordinates of one atom in every residue, (L, 3), and where it is known, (L,)."""
        index = ATOMS.index(name)
        return self.atoms[:, index], self.mask[:, index]

    @property
    def beta(self) -> tuple[Tensor, Tensor]:
        """Cβ of every residue, Cα for glycine, (L, 3), and where it is known, (L,)."""
        index = torch.tensor([CA if letter == "G" else CB for letter in self.sequence], device=self.atoms.device)
        rows = torch.arange(len(self), device=self.atoms.device)
        return self.atoms[rows, index], self.mask[rows, index]

    def find_breaks(self) -> tuple[int, ...]:
        """Residues after which the chain is broken: the next one has no known peptide bond to it.

        A bond is known where C and the next N are within 2 Å.
        """
        gap = (self.atoms[1:, N] - self.atoms[:-1, C]).norm(dim=-1)  # (L - 1,)
        bonded = self.mask[1:, N] & self.mask[:-1, C] & (gap < MAX_PEPTIDE_BOND)
        return tuple((~bonded).nonzero().flatten().tolist())
