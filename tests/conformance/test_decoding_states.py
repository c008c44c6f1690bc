"""What parts declare of decoding states, `joins` and `ragged`, both ways: what is denied fails as soon as it is
claimed. A decoding step reads no values of the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from meta_device import stay_on_meta
from moving_average import MovingAverage
from test_mixers import ROWS, build, can_decode

import headwise
from headwise import UserError
from headwise.blocks.stream import Part
from headwise.catalog import CATALOG
from headwise.models.generative import GenerativeModel
from headwise.testing import perturb_parameters
from headwise.testing.generative import IgnoreSource, check_join, check_ragged_prompts


def claim(monkeypatch: pytest.MonkeyPatch, part: Part, **claims: bool) -> None:
    """Let all parts of a class declare what they deny."""
    declared: Any = vars(next(base for base in type(part).__mro__ if "properties" in vars(base)))["properties"]
    monkeypatch.setattr(type(part), "properties", property(lambda self: replace(declared.fget(self), **claims)))


def build_language_model(row: str) -> Any:
    if row in ROWS:
        return build(row, "language-model")
    torch.manual_seed(0)
    if row == "lstm":
        return headwise.build("lstm-tiny", vocab=12, task="language-model")
    model = build("mixer-attention", "language-model")
    for layer in model.decoder.stack.layers:
        layer.parts[0] = MovingAverage(8)
    return model


@pytest.mark.parametrize("row", [*ROWS, "lstm", "moving-average"])
def test_what_a_decoding_state_can_do(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if row in ROWS and not can_decode(row):
        return
    model = perturb_parameters(build_language_model(row))
    part = model.decoder.stack.layers[0].parts[1 if "feedforward" in ROWS.get(row, {}) else 0]
    declared = part.properties
    assert model.joins == declared.joins and model.ragged == declared.ragged
    if not declared.steppable:
        return
    wrong = (AssertionError, UserError, RuntimeError)  # the last: states that do not even fit together
    if not declared.joins:
        claim(monkeypatch, part, joins=True)
        with pytest.raises(wrong):
            check_join(IgnoreSource(model))
    if declared.ragged:
        check_ragged_prompts(model)
    else:
        with pytest.raises(UserError, match=f"prompts: .*{type(part).__name__}.* would take padding for tokens"):
            check_ragged_prompts(model)
        claim(monkeypatch, part, ragged=True)
        with pytest.raises(wrong):
            check_ragged_prompts(model)


DECODING = [
    (name, task)
    for name, entry in CATALOG.items()
    for task in entry.config.tasks
    if task in ("transduce", "language-model", "caption") and entry.family != "counts"
]


@pytest.mark.parametrize(("name", "task"), DECODING)
@torch.no_grad()
def test_a_decoding_step_reads_no_values(name: str, task: str) -> None:
    entry = CATALOG[name]
    model = headwise.build(f"{name}-tiny", **({} if task == "caption" else {"vocab": 12}), task=task, device="meta")
    assert isinstance(model, GenerativeModel)
    tokens = torch.zeros(3, 5, dtype=torch.long, device="meta")
    source = torch.zeros(3, *entry.configure("tiny").input_shape, device="meta") if task == "caption" else tokens
    state = model.eval().start(source)
    with stay_on_meta():
        for _ in range(2):
            logits, state = model.step(tokens[:, 0], state)
    assert logits.shape == (3, model.decoder.head.vocab)
