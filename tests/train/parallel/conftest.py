"""The module that trains by several processes."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def same_run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("same_run", Path(__file__).with_name("same_run.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
