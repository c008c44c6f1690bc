"""Every model of the catalogue at its tiny size."""

from pathlib import Path

import pytest
import torch
from checks import CHECKS, Model, check_overfit, check_round_trip, ready

import headwise
from headwise.catalog import CATALOG

NAMES = sorted(CATALOG)


def tiny(name: str, **settings: object) -> Model:
    torch.manual_seed(0)
    return headwise.build(f"{name}-tiny", vocab=12, **settings)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_keeps_its_promises(name: str, check: object) -> None:
    check(ready(tiny(name)))


@pytest.mark.parametrize("name", NAMES)
def test_survives_a_file(name: str, tmp_path: Path) -> None:
    check_round_trip(ready(tiny(name)), tiny(name).double().eval(), tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", NAMES)
def test_learns_a_batch_by_heart(name: str) -> None:
    check_overfit(tiny(name, dropout=0.0), lr=0.003)


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_is_repeatable_and_training_is_not(name: str) -> None:
    model, ids = tiny(name), torch.tensor([[5, 6, 7]])
    assert not torch.equal(model(ids, ids), model(ids, ids))
    model.eval()
    assert torch.equal(model(ids, ids), model(ids, ids))
