"""A corpus that is larger does not take more memory."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024

root = Path(sys.argv[1])
line = "It was the best of times, it was the worst of times, it was the age of wisdom\\n"
for megabytes in (1, 12):
    file = root / f"{megabytes}.txt"
    with open(file, "w") as out:
        for number in range(megabytes):
            out.write(f"{number} {line}" * (2**20 // len(line)))
    train_experiment(parse_experiment({
        "task": {"kind": "language-model", "context": 256}, "tokeniser": "bytes",
        "data": {"train": str(file), "format": "text", "valid_fraction": 100 / file.stat().st_size, "cache": str(root)},
        "model": {"kind": "transformer-tiny"}, "train": {"steps": 1, "batch_size": 4, "threads": 1},
    }), root / "runs")
    print(peak())
"""


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    small, large = map(int, done.stdout.split())
    tokens = max(path.stat().st_size for path in Path(tmp_path).glob("*/tokens.bin"))
    assert tokens > 23 * 2**20  # two bytes each, on the disk
    assert large - small < 25, f"{small} MB for 1 MB of text, {large} MB for 12 MB"
