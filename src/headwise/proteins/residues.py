"""Residues (amino acids): letters, the heavy atoms of each type, and the atoms of their chi angles.

Orders are those of AlphaFold (Jumper et al. 2021, `residue_constants.py`), so that weights and features of its
descendants carry over: 20 residue types and X, 37 atom names (`atom37`).
"""

from __future__ import annotations

RESIDUES = "ARNDCQEGHILKMFPSTWYV"  # residue types in AlphaFold's order
UNKNOWN = "X"
GAP = "-"
RESIDUE_TYPES = RESIDUES + UNKNOWN
RESIDUE_INDEX = {letter: index for index, letter in enumerate(RESIDUE_TYPES)}
UNKNOWN_INDEX = RESIDUE_INDEX[UNKNOWN]
GAP_INDEX = len(RESIDUE_TYPES)  # in alignments: 21
ALIGNMENT_TYPES = RESIDUE_TYPES + GAP

# Other letters of FASTA and alignment files (IUPAC), as AlphaFold reads them: B is D or N, Z is E or Q, J is I or L,
# U is selenocysteine, O is pyrrolysine.
OTHER_LETTERS = {"B": "D", "Z": "E", "U": "C", "J": "X", "O": "X"}
LETTERS = {letter: letter for letter in RESIDUE_TYPES} | OTHER_LETTERS  # of files -> of residue types

THREE_LETTERS = {
    "A": "ALA", "R": "ARG", "N": "ASN", "D": "ASP", "C": "CYS", "Q": "GLN", "E": "GLU", "G": "GLY", "H": "HIS",
    "I": "ILE", "L": "LEU", "K": "LYS", "M": "MET", "F": "PHE", "P": "PRO", "S": "SER", "T": "THR", "W": "TRP",
    "Y": "TYR", "V": "VAL", "X": "UNK",
}  # fmt: skip
# Modified residues and their parents, the common ones of the PDB's chemical component dictionary.
MODIFIED = {
    "MSE": "M", "SEC": "C", "PYL": "K", "SEP": "S", "TPO": "T", "PTR": "Y", "HYP": "P", "CSO": "C", "CME": "C",
    "CSD": "C", "OCS": "C", "CSS": "C", "CSX": "C", "KCX": "K", "MLY": "K", "M3L": "K", "MLZ": "K", "ALY": "K",
    "LLP": "K", "PCA": "Q", "CGU": "E", "FME": "M", "MHO": "M", "ASX": "N", "GLX": "Q", "HIC": "H", "NEP": "H",
    "AIB": "A", "CAS": "C", "SMC": "C", "TYS": "Y",
}  # fmt: skip
ONE_LETTER = {three: one for one, three in THREE_LETTERS.items()} | MODIFIED

ATOMS = (
    "N", "CA", "C", "CB", "O", "CG", "CG1", "CG2", "OG", "OG1", "SG", "CD", "CD1", "CD2", "ND1", "ND2", "OD1", "OD2",
    "SD", "CE", "CE1", "CE2", "CE3", "NE", "NE1", "NE2", "OE1", "OE2", "CH2", "NH1", "NH2", "OH", "CZ", "CZ2", "CZ3",
    "NZ", "OXT",
)  # fmt: skip
ATOM_INDEX = {name: index for index, name in enumerate(ATOMS)}
N, CA, C, CB, O = (ATOM_INDEX[name] for name in ("N", "CA", "C", "CB", "O"))  # noqa: E741
BACKBONE = ("N", "CA", "C", "O")
# By the element, a name's first letter. Two spheres may overlap by 1.5 Å (Jumper et al. 2021, section 1.9.11).
VAN_DER_WAALS_RADII = {"C": 1.7, "N": 1.55, "O": 1.52, "S": 1.8}  # Å
ATOM_RADII = tuple(VAN_DER_WAALS_RADII[name[0]] for name in ATOMS)
CLASH_OVERLAP = 1.5  # Å

# Heavy atoms of the side chain of each type, after N, CA, C and O.
_SIDE_CHAINS = {
    "A": "CB",
    "R": "CB CG CD NE CZ NH1 NH2",
    "N": "CB CG ND2 OD1",
    "D": "CB CG OD1 OD2",
    "C": "CB SG",
    "Q": "CB CG CD NE2 OE1",
    "E": "CB CG CD OE1 OE2",
    "G": "",
    "H": "CB CG CD2 ND1 CE1 NE2",
    "I": "CB CG1 CG2 CD1",
    "L": "CB CG CD1 CD2",
    "K": "CB CG CD CE NZ",
    "M": "CB CG SD CE",
    "F": "CB CG CD1 CD2 CE1 CE2 CZ",
    "P": "CB CG CD",
    "S": "CB OG",
    "T": "CB CG2 OG1",
    "W": "CB CG CD1 CD2 CE2 CE3 NE1 CH2 CZ2 CZ3",
    "Y": "CB CG CD1 CD2 CE1 CE2 OH CZ",
    "V": "CB CG1 CG2",
    "X": "CB",
}
RESIDUE_ATOMS = {letter: BACKBONE + tuple(names.split()) for letter, names in _SIDE_CHAINS.items()}

# The four atoms of each chi angle, chi1 to chi4.
_CHI_PATHS = {
    "A": "",
    "R": "N CA CB CG CD NE CZ",
    "N": "N CA CB CG OD1",
    "D": "N CA CB CG OD1",
    "C": "N CA CB SG",
    "Q": "N CA CB CG CD OE1",
    "E": "N CA CB CG CD OE1",
    "G": "",
    "H": "N CA CB CG ND1",
    "I": "N CA CB CG1 CD1",
    "L": "N CA CB CG CD1",
    "K": "N CA CB CG CD CE NZ",
    "M": "N CA CB CG SD CE",
    "F": "N CA CB CG CD1",
    "P": "N CA CB CG CD",
    "S": "N CA CB OG",
    "T": "N CA CB OG1",
    "W": "N CA CB CG CD1",
    "Y": "N CA CB CG CD1",
    "V": "N CA CB CG1",
    "X": "",
}


def _split_path(path: str) -> tuple[tuple[str, ...], ...]:
    names = path.split()
    return tuple(tuple(names[start : start + 4]) for start in range(len(names) - 3))


CHI_ATOMS = {letter: _split_path(path) for letter, path in _CHI_PATHS.items()}
# Chi angles whose two ends are the same atom twice: a turn by half a circle gives the same side chain.
CHI_PERIODIC = {"D": (1,), "E": (2,), "F": (1,), "Y": (1,)}  # the number of the angle, from 0


def encode_sequence(sequence: str) -> list[int]:
    """Turn one-letter codes into indices of residue types; every letter that is none of the 20 becomes X.

    >>> encode_sequence("ARX?")
    [0, 1, 20, 20]
    """
    return [RESIDUE_INDEX.get(letter, UNKNOWN_INDEX) for letter in sequence]


def decode_sequence(indices: list[int]) -> str:
    """Turn indices of residue types, and gaps, into one-letter codes.

    >>> decode_sequence([0, 1, 20, 21])
    'ARX-'
    """
    return "".join(ALIGNMENT_TYPES[index] for index in indices)
