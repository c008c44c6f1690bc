"""Every model of the catalogue that folds proteins, at its tiny size."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import headwise
from headwise.catalog import CATALOG
from headwise.proteins.chains import ChainSettings, generate_chain
from headwise.proteins.residues import RESIDUE_TYPES
from headwise.tasks.fold import ChainBatch, Fold, FoldConfig
from headwise.testing import check_model, perturb_parameters
from headwise.testing.folding import draw_features
from headwise.testing.model import list_checks
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.train.state import LossState

NAMES = sorted(name for name, entry in CATALOG.items() if "fold" in entry.config.tasks)


def build_tiny(name: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    return headwise.build(f"{name}-tiny", **settings)


def build_task(**settings: Any) -> Fold:
    letters = Characters(RESIDUE_TYPES)
    return Fold(FoldConfig(**settings), Tokenisers(letters, letters))


@pytest.mark.parametrize("name", NAMES)
def test_models_do_what_their_parts_declare(name: str) -> None:
    model = build_tiny(name)
    assert len(list_checks(model)) >= 5
    check_model(model)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_weights_are_the_same_after_saving_and_loading(name: str, tmp_path: Path) -> None:
    model, features = perturb_parameters(build_tiny(name)), draw_features(5)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = build_tiny(name).double().eval()
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other(features).chain.atoms, model(features).chain.atoms)


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_is_repeatable_and_training_is_not(name: str) -> None:
    model, features = perturb_parameters(build_tiny(name)).train(), draw_features(5)
    assert not torch.equal(model(features).chain.atoms, model(features).chain.atoms)
    model.eval()
    assert torch.equal(model(features).chain.atoms, model(features).chain.atoms)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_gradient(name: str) -> None:
    """The extra alignment and recycling included, with all losses."""
    chain = generate_chain(0, 0, ChainSettings(min_length=12, max_length=12, rows=8))
    weights = {"aligned_error": 0.1, "resolved": 0.01, "violation": 1.0}
    task, model = build_task(clusters=4, extra=4, weights=weights), build_tiny(name, recycles=1)
    perturbed = perturb_parameters(model).float().train()
    for seed in range(4):  # with a random number of cycles
        torch.manual_seed(seed)
        task.loss(perturbed, ChainBatch(((chain.structure, chain.alignment),)), LossState()).total.backward()
    lacking = [key for key, weight in perturbed.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert all(key.startswith("template.") for key in lacking), lacking  # the chains have none
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in perturbed.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_overfits_a_chain(name: str) -> None:
    """A generated chain of twelve residues is learnt from its sequence alone."""
    chain = generate_chain(0, 0, ChainSettings(min_length=12, max_length=12, rows=1))
    task, batch = build_task(clusters=1, extra=0, masked=0.0), ChainBatch(((chain.structure, chain.alignment),))
    model = build_tiny(name, dropout=0.0, recycles=0, structure={"dropout": 0.0})
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = task.score_chain(model, chain)["lDDT-Cα"]
    model.train()
    for _ in range(100):
        optimizer.zero_grad()
        task.loss(model, batch, LossState()).total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    score = task.score_chain(model, chain)
    assert first < 0.3 and score["lDDT-Cα"] > 0.5
