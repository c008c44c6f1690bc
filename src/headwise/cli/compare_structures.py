"""`headwise compare-structures`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import Json

Chain = Annotated[str, Parameter(help="The chain to read of both files; default: the first one.")]


def compare_structures(predicted: Path, true: Path, *, chain: Chain = "", json_: Json = False) -> None:
    """Compare a predicted structure with the true one: lDDT, TM-score, GDT-TS, RMSD, dRMSD and clashes.

    Both are PDB or mmCIF files of one sequence; residues are compared by their place in it.

    For example:

        headwise compare-structures query.pdb 1ubi.cif.gz

    Parameters
    ----------
    predicted
        The prediction, which clashes are counted in.
    true
        The structure that distances are taken from.
    """
    from headwise.proteins.metrics import compare_structures as compare
    from headwise.proteins.readers.structures import read_chain

    scores = compare(read_chain(predicted, chain), read_chain(true, chain))
    if json_:
        print(json.dumps(scores, ensure_ascii=False))
        return
    for name, value in scores.items():
        unit = " Å" if name.endswith("RMSD") else ""
        print(f"{name} {value:.0f}" if name == "clashes" else f"{name} {value:.4f}{unit}")
