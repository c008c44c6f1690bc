"""AlphaFold 2, small, learns one real structure by heart: `python benchmarks/fold_by_heart.py FILE [--steps N]`.

FILE is a PDB or mmCIF file; its first chain is learnt from its sequence alone. That a model can learn one structure by
heart says that gradients reach it, not that it can fold: it has seen nothing else. Prints one line of JSON for each
hundred steps, with the scores of the structure that it predicts, and writes it to `--out` as a PDB file at the end.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import headwise
from headwise.proteins.features import make_single_row
from headwise.proteins.readers.pdb_writer import write_pdb
from headwise.proteins.readers.structures import read_chain
from headwise.proteins.residues import RESIDUE_TYPES
from headwise.tasks.fold import ChainBatch, Fold, FoldConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.train.state import LossState


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    chain = read_chain(arguments.file)
    alignment, letters = make_single_row(chain), Characters(RESIDUE_TYPES)
    task = Fold(FoldConfig(clusters=1, extra=0, masked=0.0), Tokenisers(letters, letters))
    model = headwise.build("alphafold2-small", recycles=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    start, batch = time.process_time(), ChainBatch(((chain, alignment),))
    for step in range(1, arguments.steps + 1):
        progress = step / arguments.steps
        for group in optimizer.param_groups:  # warm-up, then down to 0
            group["lr"] = arguments.lr * min(1.0, step / 50) * min(1.0, 2 * (1 - progress) + 1e-3)
        optimizer.zero_grad()
        loss = task.loss(model.train(), batch, LossState())
        loss.total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            scores = {name: round(value, 3) for name, value in task.score_chain(model, chain, alignment).items()}
            seconds = round(time.process_time() - start)
            print(
                json.dumps({"step": step, "seconds": seconds, "loss": round(loss.nll.item(), 3), **scores}), flush=True
            )
    if arguments.out:
        write_pdb(arguments.out, *task.fold(model, alignment))


if __name__ == "__main__":
    main()
