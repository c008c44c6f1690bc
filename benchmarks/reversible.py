"""Peak memory of a training step over depth, with reversible layers and without.

    python benchmarks/reversible.py --length 2048 --depths 2 4 8 16

Each figure is of a process of its own: the model is built and its gradients are there, then comes one forward and
backward pass; what the process's resident memory grew at its peak is printed in megabytes. One thread.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
from pathlib import Path
from typing import Any

import torch

import headwise

MMAP_THRESHOLD = -3  # of glibc's mallopt
WIRINGS: dict[str, dict[str, Any]] = {
    "pre": {"wiring": "pre", "tie": "none"},
    "reversible": {"wiring": "reversible", "tie": "none"},
    "reversible, chunked": {"wiring": "reversible", "tie": "none", "feedforward": {"kind": "mlp", "chunk": 256}},
}


def status(key: str) -> int:
    """A line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


def peak(settings: dict[str, Any], depth: int, length: int, width: int, pipe: Any) -> None:
    """Send the growth of resident memory over one pass."""
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 2**16)  # what is freed goes back at once, so that it is not counted
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = headwise.build(
        "transformer", vocab=100, task="language-model", width=width, decoder={"depth": depth}, **settings
    )
    ids = torch.randint(4, 100, (1, length))
    model(ids[:, :8], labels=ids[:, :8]).total.backward()  # gradients, and all that is loaded at its first use
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    model(ids, labels=ids).total.backward()
    pipe.send(status("VmHWM") - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--width", type=int, default=256)
    chosen = parser.parse_args()
    fork = multiprocessing.get_context("fork")
    print("| wiring | " + " | ".join(f"depth {depth}" for depth in chosen.depths) + " |")
    print("|---" * (1 + len(chosen.depths)) + "|")
    for name, settings in WIRINGS.items():
        row = []
        for depth in chosen.depths:
            here, there = fork.Pipe(duplex=False)
            process = fork.Process(target=peak, args=(settings, depth, chosen.length, chosen.width, there))
            process.start()
            row.append(f"{here.recv() / 2**20:.0f}")
            process.join()
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
