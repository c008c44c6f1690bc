"""Read real structures and compare every chain with gemmi and biotite.

    HEADWISE_DATA=... python benchmarks/proteins.py
    HEADWISE_DATA=... python benchmarks/proteins.py --tm-align TMalign    # Debian: tm-align

Reads all files of `proteins/structures` under HEADWISE_DATA: sequences, residue numbers and coordinates of the 37 atom
types must be equal to what gemmi and biotite read (alternate locations: the conformation with the largest occupancy).
With `--tm-align`, TM-scores of pairs of chains on TM-align's own alignment must be TM-align's within 1e-3. Every chain
is then written as a PDB file and read again. Prints a row a chain; exits with 1 if one differs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import biotite.structure.io.pdb as biotite_pdb
import biotite.structure.io.pdbx as biotite_pdbx
import gemmi
import numpy as np

from headwise.data.files import open_file
from headwise.proteins.metrics import compute_tm_score
from headwise.proteins.readers.pdb import read_pdb
from headwise.proteins.readers.pdb_writer import write_pdb
from headwise.proteins.readers.structures import read_chains
from headwise.proteins.residues import ATOMS, CA
from headwise.proteins.structure import Structure

Atoms = dict[tuple[str, str], tuple[float, ...]]  # (residue number, atom) -> position


def list_atoms(structure: Structure) -> Atoms:
    return {
        (structure.residue_numbers[row], ATOMS[column]): tuple(structure.atoms[row, column].tolist())
        for row, column in structure.mask.nonzero().tolist()
    }


def read_with_gemmi(path: Path) -> dict[str, Atoms]:
    """The atoms of each chain's polymer; of alternate locations those with the largest sum of occupancies."""
    structure = gemmi.read_structure(str(path))
    structure.setup_entities()
    model = structure[0]
    chains: dict[str, Atoms] = {}
    for chain in model:
        by_number = defaultdict(list)
        for residue in chain.get_polymer():
            number = f"{residue.seqid.num}{residue.seqid.icode.strip()}"
            for atom in residue:
                by_number[number].append((atom.altloc.strip("\0 "), atom.occ, residue.name, atom.name, atom.pos))
        atoms: Atoms = {}
        for number, rows in by_number.items():
            sums: dict[str, float] = defaultdict(float)
            for location, occupancy, *_ in rows:
                sums[location] += occupancy if location else 0
            best = max((location for location in sums if location), key=sums.__getitem__, default="")
            for location, _, residue, name, position in rows:
                if location in ("", best):
                    name = "SD" if (residue, name) == ("MSE", "SE") else name
                    atoms.setdefault((number, name), (position.x, position.y, position.z))
        if atoms:
            chains[chain.name] = atoms
    return chains


def read_with_biotite(path: Path) -> dict[str, Atoms]:
    with open_file(path) as file, tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / Path(path.stem).name
        plain.write_bytes(file.read())
        if plain.suffix == ".pdb":
            array = biotite_pdb.PDBFile.read(plain).get_structure(model=1, altloc="occupancy")
        else:
            array = biotite_pdbx.get_structure(biotite_pdbx.CIFFile.read(plain), model=1, altloc="occupancy")
    chains: dict[str, Atoms] = defaultdict(dict)
    for atom in array:
        name = "SD" if (atom.res_name, atom.atom_name) == ("MSE", "SE") else atom.atom_name
        chains[atom.chain_id].setdefault((f"{atom.res_id}{atom.ins_code}", name), tuple(atom.coord.tolist()))
    return chains


def compare(ours: Atoms, theirs: Atoms) -> tuple[int, float]:
    """Our atoms that the other has not, or that it has of the 37 names in our residues and we have not; and the largest
    difference of coordinates."""
    numbers = {number for number, _ in ours}
    expected = {key for key in theirs if key[0] in numbers and key[1] in ATOMS}
    common = expected & set(ours)
    distance = max((float(np.abs(np.subtract(ours[key], theirs[key])).max()) for key in common), default=0.0)
    return len(expected ^ set(ours)), distance


def compare_tm_scores(program: str, folder: Path) -> int:
    """TM-align's score of pairs of chains, normalised by the second one, and ours on its alignment."""
    chains = {path.name[:4]: read_chains(path)[0] for path in sorted(folder.iterdir())}
    wrong = 0
    for first, second in itertools.combinations(chains, 2):
        a, b = (chains[name].select_known() for name in (first, second))
        with tempfile.TemporaryDirectory() as name:
            files = [write_pdb(Path(name) / f"{number}.pdb", chain) for number, chain in enumerate((a, b))]
            output = subprocess.run([program, *files], capture_output=True, text=True, check=True).stdout
        theirs = float(re.findall(r"TM-score= *([0-9.]+)", output)[1])
        top, _, bottom = output.split("residue pairs")[1].splitlines()[1:4]
        rows, columns = align_letters(top.strip(), bottom.strip())
        ours = compute_tm_score(a.atoms[rows, CA], b.atoms[columns, CA], len(b))
        wrong += abs(ours - theirs) > 1e-3
        print(f"{first} {second} {len(rows):4} aligned  TM-align {theirs:.4f}  ours {ours:.4f}  {ours - theirs:+.4f}")
    print(f"{wrong} pairs differ by more than 1e-3")
    return wrong


def align_letters(top: str, bottom: str) -> tuple[list[int], list[int]]:
    """The residues of both sequences that stand above each other."""
    rows, columns, place = [], [], [0, 0]
    for above, below in zip(top, bottom, strict=True):
        if "-" not in (above, below):
            rows.append(place[0])
            columns.append(place[1])
        place = [place[0] + (above != "-"), place[1] + (below != "-")]
    return rows, columns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tm-align", default="", help="the program TMalign")
    program = parser.parse_args().tm_align
    folder = Path(os.environ["HEADWISE_DATA"]) / "proteins" / "structures"
    if program:
        return 1 if compare_tm_scores(program, folder) else 0
    different = 0
    print(f"{'file':14} chain residues known breaks atoms  gemmi: atoms, Å     biotite: atoms, Å   written: Å")
    for path in sorted(folder.iterdir()):
        by_gemmi, by_biotite = read_with_gemmi(path), read_with_biotite(path)
        for structure in read_chains(path):
            ours = list_atoms(structure)
            results = [compare(ours, other[structure.chain]) for other in (by_gemmi, by_biotite)]
            with tempfile.TemporaryDirectory() as name:
                written = write_pdb(Path(name) / "chain.pdb", structure)
                again = list_atoms(read_pdb(written)[0])
                copies = [again, *(reader(written)[structure.chain] for reader in (read_with_gemmi,))]
            rounding = [compare(ours, copy) for copy in copies]
            wrong = any(count or gap > 1e-3 for count, gap in results + rounding)
            different += wrong
            print(
                f"{path.name:14} {structure.chain:5} {len(structure):8} {int(structure.mask.any(1).sum()):5} "
                f"{len(structure.find_breaks()):6} {len(ours):5}  "
                + "".join(f"{count:6} {gap:10.1e}   " for count, gap in results)
                + f"  {max(gap for _, gap in rounding):.1e}{'  DIFFERENT' if wrong else ''}"
            )
    print(f"{different} chains differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
