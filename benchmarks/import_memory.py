"""Peak of resident memory while a Hugging Face folder is imported, relative to the size of its weights.

Usage: python benchmarks/import_memory.py [--width 768] [--depth 9] [--folder FOLDER]

Without a folder a random GPT-2 is written, once for each dtype in one file, and once in shards; `transformers` must be
installed. Each folder is imported in a process of its own. The peak is the largest resident set (VmHWM, Linux)
beyond that before the import; the weights are those of the model, in float32.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

DTYPES = ("float16", "bfloat16", "float32", "float64")
MEASURE = r"""
import re, sys, time
from pathlib import Path
from headwise.interop.hf.read import read_folder

def read_peak():
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])

before, start = read_peak(), time.perf_counter()
model = read_folder(sys.argv[1]).model
seconds = time.perf_counter() - start
print(read_peak() - before, sum(parameter.nbytes for parameter in model.parameters()), seconds)
"""


def measure_import(folder: Path) -> tuple[int, int, float]:
    """Peak in bytes, weights in bytes, seconds."""
    command = [sys.executable, "-c", MEASURE, str(folder)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(output[0]), int(output[1]), float(output[2])


def write_folders(width: int, depth: int, parent: Path) -> list[Path]:
    """Folders of a random GPT-2 in every dtype, and in float32 shards."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=width, n_layer=depth, n_head=width // 64))
    folders = []
    for dtype in DTYPES:
        folders.append(parent / dtype)
        model.to(getattr(torch, dtype)).save_pretrained(folders[-1])
    folders.append(parent / "float32-shards")
    model.to(torch.float32).save_pretrained(folders[-1], max_shard_size="50MB")
    return folders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--depth", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="Measure this folder instead.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        for folder in (
            [arguments.folder] if arguments.folder else write_folders(arguments.width, arguments.depth, Path(parent))
        ):
            peak, weights, seconds = measure_import(folder)
            print(f"{folder.name:<16} {weights / 1e6:7.1f} MB  peak {peak / weights:.3f} x  {seconds:5.1f} s")


if __name__ == "__main__":
    main()
