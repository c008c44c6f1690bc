"""`headwise fold`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headwise.cli.common import Checkpoint, Device, Json, Threads, load_model, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.proteins.alignments import Alignment

Msa = Annotated[Path | None, Parameter(help="An alignment (.a3m, .sto) whose first row is the sequence.")]
Out = Annotated[Path | None, Parameter(help="The PDB file to write; default: the sequence's file name with .pdb.")]


def fold(
    run: Path,
    sequence: Path,
    *,
    msa: Msa = None,
    out: Out = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Predict the structure of a protein from its sequence, and an alignment if there is one, as a PDB file.

    The column of B-factors has the model's confidence in each residue, 0 to 100. How long a chain may be is computed
    from the free memory before it is folded.

    For example:

        headwise fold runs/chains-alphafold2 sequence.fasta --out model.pdb
        headwise fold runs/chains-alphafold2 sequence.fasta --msa sequence.a3m --out model.pdb
        headwise fold runs/chains-alphafold1 query.sto

    Parameters
    ----------
    run
        A run folder.
    sequence
        A FASTA file of one sequence; or an alignment, whose first row is folded. Plain or compressed.
    """
    from headwise.proteins.readers.pdb_writer import write_pdb

    alignment = read_query(sequence, msa)
    path = out or Path(f"{sequence.name.partition('.')[0]}.pdb")
    check_out(path)
    loaded = load_model(run, checkpoint, device, threads)
    structure, confidence = loaded.check_command("fold").fold(loaded.model, alignment)
    write_pdb(path, structure, confidence)
    mean = float(confidence.mean())
    if json_:
        print(json.dumps({"file": str(path), "residues": len(structure), "confidence": round(mean, 2)}))
    else:
        say(f"{len(structure)} residues, mean confidence {mean:.1f}")
        print(path)


def read_query(path: Path, msa: Path | None) -> Alignment:
    """The alignment of a sequence: that of `msa`, of the file itself, or the sequence alone."""
    from headwise.data.compression import strip_suffix
    from headwise.proteins.alignments import make_single_row
    from headwise.proteins.readers.alignments import read_alignment
    from headwise.proteins.readers.fasta import SUFFIXES, read_fasta

    if not strip_suffix(path.name).lower().endswith(SUFFIXES):
        if msa:
            raise UserError(f"{path}: with --msa, give the sequence alone as a FASTA file ({', '.join(SUFFIXES)})")
        return read_alignment(path)
    sequences = read_fasta(path)
    if len(sequences) > 1:
        raise UserError(
            f"{path}: has {len(sequences)} sequences, and one is folded; give a file of one, and an alignment as --msa"
        )
    query = sequences[0].sequence
    if not msa:
        return make_single_row(query)
    alignment = read_alignment(msa)
    alignment.check_query(query, msa, str(path))
    return alignment


def check_out(path: Path) -> None:
    """Refuse an output file that could not be written, before the chain is folded."""
    if path.suffix != ".pdb":
        raise UserError(f"--out {path}: structures are written as PDB files; choose a name that ends in .pdb")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: there is no folder {path.parent}; make it first")
