"""Makes what parity tests share importable, whatever the import mode."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


class DoubleTorch:
    """torch for a module that casts to float32 by name: there float32 is float64."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture
def double_rigids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transformers' OpenFold utilities keep rotations and translations in float64."""
    from transformers.models.esm.openfold_utils import rigid_utils

    monkeypatch.setattr(rigid_utils, "torch", DoubleTorch())
