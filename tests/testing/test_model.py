"""`check_model` sees what a model does wrong, and names it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise.models.generative import DecodingState
from headwise.models.language_model import LanguageModel
from headwise.testing import check_model
from headwise.testing.model import combine_properties


def build(**settings: Any) -> Any:
    torch.manual_seed(0)
    return headwise.build("transformer-tiny", vocab=12, task="language-model", decoder={"depth": 1}, **settings)


class StepsDiffer(LanguageModel):
    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        logits, state = super().step(tokens, state)
        return logits + 0.01 * state.length, state


class IgnoresDocuments(LanguageModel):
    def forward(self, ids: Tensor, segment: Tensor | None = None, **wanted: Any) -> Any:  # type: ignore[override]
        return super().forward(ids, **wanted)


class HearsOtherRows(LanguageModel):
    def forward(self, ids: Tensor, labels: Tensor | None = None, **wanted: Any) -> Any:  # type: ignore[override]
        outputs = super().forward(ids, labels, **wanted)
        return outputs if labels is not None else outputs + 0.01 * outputs.mean(0)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (StepsDiffer, r"(?s)cached: .*Greatest absolute difference: \d"),
        (IgnoresDocuments, r"packing: document \d has a gradient of \d"),
        (HearsOtherRows, r"(?s)batch: .*Greatest absolute difference: \d"),
    ],
)
def test_a_model_that_breaks_a_promise_is_caught(mutant: type[LanguageModel], message: str) -> None:
    sound = build()
    check_model(sound)
    with pytest.raises(AssertionError, match=message):
        check_model(mutant(sound.decoder))


def test_a_denial_is_seen_in_the_model() -> None:
    model = headwise.build("lstm-tiny", vocab=12)
    assert not combine_properties(model).packing
    check_model(model)


def test_the_model_that_is_given_is_not_changed() -> None:
    model = build()
    before = [parameter.clone() for parameter in model.parameters()]
    check_model(model)
    assert model.training
    assert all(torch.equal(*both) for both in zip(model.parameters(), before, strict=True))


def test_other_models_are_refused() -> None:
    with pytest.raises(TypeError, match="there are no checks for Linear"):
        check_model(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="there are no checks for ImageClassifier: give `image`"):
        check_model(headwise.build("vit-tiny"))
