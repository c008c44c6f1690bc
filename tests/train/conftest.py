"""The small model, data and task that the kill benchmark trains."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from headwise.runs import Run


@pytest.fixture(scope="session")
def toy() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "kills.py"
    spec = importlib.util.spec_from_file_location("kills", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _settings_of_the_process():
    """Training sets threads and denormals for its whole process."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", {})
