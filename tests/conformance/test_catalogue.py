"""Every model of the catalogue at its tiny size, for every task that it can do."""

from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.catalog import CATALOG
from headwise.testing import check_model, perturb_parameters, text_classifier
from headwise.testing.generative import IgnoreSource, check_overfit, check_round_trip
from headwise.testing.model import list_checks
from headwise.testing.overfit import overfit_batch

WRITING, READING = ("transduce", "language-model"), ("tag", "classify", "masked")


def list_learners(tasks: tuple[str, ...]) -> list[tuple[str, str]]:
    """Names and tasks of models that have parameters; those that count are tested with their own packages."""
    able = [(name, task) for name, entry in sorted(CATALOG.items()) for task in entry.config.tasks if task in tasks]
    return [(name, task) for name, task in able if CATALOG[name].family != "counts"]


def build_tiny(name: str, task: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    if task in READING:
        both = {"bidirectional": True} if "bidirectional" in CATALOG[name].config.model_fields else {}
        return headwise.build(f"{name}-tiny", vocab=12, outputs=9, task=task, **both, **settings)
    return headwise.build(f"{name}-tiny", vocab=12, task=task, **settings)


@pytest.mark.parametrize(("name", "task"), list_learners((*WRITING, *READING)))
def test_models_do_what_their_parts_declare(name: str, task: str) -> None:
    model = build_tiny(name, task)
    assert len(list_checks(model)) >= 5
    check_model(model)


@pytest.mark.parametrize(("name", "task"), list_learners(WRITING))
def test_generative_models_are_the_same_after_saving_and_loading(name: str, task: str, tmp_path: Path) -> None:
    model, fresh = perturb_parameters(build_tiny(name, task)), build_tiny(name, task).double().eval()
    if task == "language-model":
        model, fresh = IgnoreSource(model), IgnoreSource(fresh)
    check_round_trip(model, fresh, tmp_path / "model.safetensors")


@pytest.mark.parametrize(("name", "task"), list_learners(("transduce",)))
def test_encoder_decoders_overfit_a_batch(name: str, task: str) -> None:
    recurrent = CATALOG[name].family == "seq2seq"
    check_overfit(build_tiny(name, task, dropout=0.0), steps=200 if recurrent else 80, lr=0.01 if recurrent else 0.003)


@pytest.mark.parametrize(("name", "task"), list_learners(("language-model",)))
def test_language_models_overfit_a_text(name: str, task: str) -> None:
    model = build_tiny(name, task, dropout=0.0)
    text = torch.tensor([[1, 4, 5, 6, 7, 8, 9, 10]])

    def compute_loss() -> torch.Tensor:
        loss = model(text[:, :-1], labels=text[:, 1:])
        return loss.total / loss.count

    overfit_batch(model, compute_loss, steps=80, lr=0.01)
    state, tokens, written = model.start(text[:, :2]), text[:, 2], []
    for _ in range(5):
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(-1)
        written.append(int(tokens))
    assert written == [6, 7, 8, 9, 10]


@pytest.mark.parametrize(("name", "task"), list_learners(READING))
def test_every_output_of_an_encoder_depends_on_every_token(name: str, task: str) -> None:
    text_classifier.check_sees_everything(perturb_parameters(build_tiny(name, task)))


@pytest.mark.parametrize(("name", "task"), list_learners(READING))
def test_encoders_overfit_a_batch(name: str, task: str) -> None:
    # from weights of 0.02 or 1, whatever the width
    slowly = CATALOG[name].family == "encoder" or name in ("t5", "switch")
    text_classifier.check_overfit(
        build_tiny(name, task, dropout=0.0), **({"steps": 200, "lr": 0.003} if slowly else {})
    )


@pytest.mark.parametrize(("name", "task"), list_learners((*WRITING, *READING)))
def test_evaluation_is_repeatable_and_training_is_not(name: str, task: str) -> None:
    model, ids = build_tiny(name, task), torch.tensor([[5, 6, 7]])
    given = (ids, ids) if task == "transduce" else (ids,)
    assert not torch.equal(model(*given), model(*given))
    model.eval()
    assert torch.equal(model(*given), model(*given))
