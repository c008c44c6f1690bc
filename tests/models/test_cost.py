"""Costs that are counted without allocating anything are those of the model itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise.models.cost import _storages, cost, inputs


def kept(model: Any, rows: int, length: int) -> int:
    """What autograd really keeps for the backward pass."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    given = [torch.zeros(x.shape, dtype=x.dtype) for x in inputs(model, rows, length)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.train()(*given, labels=given[-1])
    return sum(tensor.numel() * tensor.element_size() for tensor in _storages(found))


@pytest.mark.parametrize("length", [16, 200])
@pytest.mark.parametrize("name", ["gpt-tiny", "llama-tiny", "bart-tiny"])
def test_activations_are_what_training_keeps(name: str, length: int) -> None:
    """Attention by a fused kernel has no map of T x T to keep."""
    settings: dict[str, Any] = {"vocab": 50, "positions": "sinusoid"}
    told = cost(headwise.build(name, device="meta", **settings), length).activation_bytes
    model = headwise.build(name, **settings)
    assert told == kept(model, 2, length) - kept(model, 1, length)


def test_activations_grow_with_the_text_and_with_its_square_where_a_map_is_kept() -> None:
    def grown(**settings: Any) -> float:
        model = headwise.build("gpt-tiny", vocab=50, positions="sinusoid", device="meta", **settings)
        return cost(model, 2048).activation_bytes / cost(model, 1024).activation_bytes

    assert grown() == pytest.approx(2, rel=0.01)
    assert grown(mixer={"kind": "attention", "kernel": "plain"}) > 3.5
