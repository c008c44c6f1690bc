"""Too little memory is one sentence that names what to change, in real processes with a limit of address space."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from headwise.errors import UserError
from headwise.models.build import check_memory, find_largest
from headwise.utils.cpu import get_available_memory
from headwise.utils.memory import is_out_of_memory, needs_memory

EXPERIMENT = """
data = {{train = "pairs.tsv", valid_fraction = 0.1}}
model = {{kind = "transformer-tiny", width = {width}}}
[train]
steps = 2
batch_size = {rows}
threads = 1
samples = 0
"""
LIMITED = """
import resource, sys
from pathlib import Path
import torch, headwise.cli.train, headwise.experiment.run, torch._dynamo
from headwise.cli.main import main
mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + 600 * 2**20,) * 2)
main(["train", "experiment.toml"])
"""


def train(folder: Path, width: int, rows: int) -> str:
    """Train in a process that may map 600 MB; returns its last sentence."""
    (folder / "pairs.tsv").write_text("".join(f"{number:0200}\t{number:0200}\n" for number in range(3000)))
    (folder / "experiment.toml").write_text(EXPERIMENT.format(width=width, rows=rows))
    done = subprocess.run([sys.executable, "-c", LIMITED], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    return done.stderr.splitlines()[-1]


def test_a_batch_that_does_not_fit_names_the_settings_to_change(tmp_path):
    message = train(tmp_path, 64, 2500)
    assert "a batch does not fit in memory" in message
    assert all(key in message for key in ("train.batch_size", "train.tokens_per_batch", "train.accumulate"))


def test_a_model_that_does_not_fit_is_refused_before_there_is_a_run(tmp_path):
    message = train(tmp_path, 4096, 8)
    assert re.match(r"headwise: model: needs [\d.]+ GB for its [\d,]+ parameters, and 0.\d GB are free", message)
    assert "model.width = 4,096" in message and not (tmp_path / "runs").exists()


def test_the_free_memory_is_that_of_the_process():
    free, limits = get_available_memory(), resource.getrlimit(resource.RLIMIT_AS)
    assert free > 2**20
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**28, limits[1]))
        assert 0 < get_available_memory() <= 2**28
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_sizes_are_compared_before_anything_is_allocated():
    check_memory(lambda: nn.Linear(8, 8), {"width": 8}, copies=2)
    with pytest.raises(UserError, match=r"model: needs .* choose smaller sizes, now model.width = 10,000,000"):
        check_memory(lambda: nn.Linear(10**7, 10**7), {"width": 10**7}, copies=1)
    with pytest.raises(UserError, match=r"model: needs more than 2\^63 bytes"):
        check_memory(lambda: nn.Linear(2**60, 2**60), {}, copies=1)


def test_the_largest_settings_are_named_first():
    assert find_largest({"a": 1, "b": {"c": 7, "d": "x"}, "e": True}) == [("b.c", 7), ("a", 1)]


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="shape"), needs_memory("a", "b"):
        torch.zeros(2, 3).view(5)
    large = r"^a does not fit in memory, which asks for another .* GB at once; b$"
    with pytest.raises(UserError, match=large), needs_memory("a", "b"):
        torch.empty(2**50)
    assert is_out_of_memory(MemoryError()) and not is_out_of_memory(ValueError("out of memory"))
    with needs_memory("a", "b"):
        pass
