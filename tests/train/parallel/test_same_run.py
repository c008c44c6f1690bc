"""One model trained by several processes: the same losses and weights as by one. Real processes, on loopback."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def same_run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("same_run", Path(__file__).with_name("same_run.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_any_number_of_processes_trains_the_same_model(tmp_path, same_run):
    """In float64, with accumulation, clipping and an average of the weights. The last batch of an epoch, of two rows,
    has fewer rows than there are processes."""
    same_run.write_data(tmp_path)
    chosen = {"translation": same_run.describe_experiments(tmp_path)["translation"]}
    same_run.train_all(tmp_path, chosen, [1, 2, 3], steps=8, accumulate=2, ema=0.9)
    for size in (2, 3):
        losses, weights = same_run.measure_difference(tmp_path / "translation", size)
        assert losses < 1e-9
        assert weights < 1e-6  # the scale of clipping is a float32
