"""Residues and atoms are in the order of OpenFold, as transformers ships it."""

import pytest
import torch
from transformers.models.esm.openfold_utils import residue_constants as openfold

from headwise.proteins import residues
from headwise.proteins.structure import Structure


def test_orders_are_those_of_alphafold():
    assert list(residues.RESIDUES) == openfold.restypes
    assert list(residues.ATOMS) == openfold.atom_types
    assert openfold.restype_order_with_x == residues.RESIDUE_INDEX


@pytest.mark.parametrize("letter", residues.RESIDUES)
def test_atoms_and_chi_angles_are_those_of_alphafold(letter):
    name = residues.THREE_LETTERS[letter]
    assert set(residues.RESIDUE_ATOMS[letter]) == set(openfold.residue_atoms[name])
    assert [list(atoms) for atoms in residues.CHI_ATOMS[letter]] == openfold.chi_angles_atoms[name]
    periodic = openfold.chi_pi_periodic[residues.RESIDUE_INDEX[letter]]
    assert residues.CHI_PERIODIC.get(letter, ()) == tuple(n for n, flag in enumerate(periodic) if flag)


def test_a_structure_refuses_what_does_not_fit():
    atoms, mask = torch.zeros(2, 37, 3), torch.zeros(2, 37, dtype=torch.bool)
    with pytest.raises(ValueError, match="3 residues have atoms and mask of shapes"):
        Structure("AAA", atoms, mask)
    with pytest.raises(ValueError, match=r"the sequence has \?"):
        Structure("A?", atoms, mask)
    with pytest.raises(ValueError, match="2 residues have 1 residue numbers"):
        Structure("AA", atoms, mask, ("1",))
