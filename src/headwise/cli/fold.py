"""`headwise fold`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import Checkpoint, Device, Json, Threads, load_model, say


def fold(
    run: Path,
    alignment: Path,
    *,
    out: Annotated[
        Path | None, Parameter(help="The PDB file to write; default: the alignment's name with .pdb.")
    ] = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Predict the structure of a protein from an alignment, as a PDB file.

    The alignment is an .a3m or a Stockholm file (.sto), whose first sequence is the query, or a .fasta file of one
    sequence. The column of B-factors has the model's confidence in each residue, 0 to 100.

    For example:

        headwise fold runs/chains-alphafold1 query.a3m
        headwise fold runs/chains-alphafold1 query.sto --out query.pdb

    Parameters
    ----------
    run
        A run folder.
    alignment
        An alignment, plain or compressed.
    """
    from headwise.proteins.readers.alignments import read_alignment
    from headwise.proteins.readers.pdb_writer import write_pdb

    rows = read_alignment(alignment)
    loaded = load_model(run, checkpoint, device, threads)
    structure, confidence = loaded.check_command("fold").fold(loaded.model, rows)
    path = out or Path(f"{alignment.name.partition('.')[0]}.pdb")
    write_pdb(path, structure, confidence)
    mean = float(confidence.mean())
    if json_:
        print(json.dumps({"file": str(path), "residues": len(structure), "confidence": round(mean, 2)}))
    else:
        say(f"{len(structure)} residues, mean confidence {mean:.1f}")
        print(path)
