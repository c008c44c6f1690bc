"""One of several processes that train small experiments in groups of different sizes.

python worker.py RANK PROCESSES FOLDER: FOLDER/plan.json has the experiments, and for each the numbers of processes with
the port at which they meet. The runs are in FOLDER/NAME/PROCESSES.
"""

import json
import os
import sys
from pathlib import Path

import torch

from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment


def main(rank: int, folder: Path) -> None:
    torch.set_default_dtype(torch.float64)
    for name, tables, ports in json.loads((folder / "plan.json").read_text(encoding="utf-8")):
        for size, port in ports.items():
            if rank < int(size):
                address = {"RANK": str(rank), "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                os.environ.update(address)
                train_experiment(parse_experiment({"name": size, **tables}), folder / name)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
