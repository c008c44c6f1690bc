"""Costs counted on the meta device are those of the model itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise.models.cost import _unique_storages, count_cost, make_inputs


def count_saved_bytes(model: Any, rows: int, length: int) -> int:
    """Bytes that autograd saves for the backward pass."""
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    batch = [torch.zeros(x.shape, dtype=x.dtype) for x in make_inputs(model, rows, length)]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.train()(*batch, labels=batch[-1])
    return sum(tensor.numel() * tensor.element_size() for tensor in _unique_storages(saved))


@pytest.mark.parametrize("length", [16, 200])
@pytest.mark.parametrize("name", ["gpt-tiny", "llama-tiny", "bart-tiny"])
def test_counted_activations_are_what_autograd_saves(name: str, length: int) -> None:
    """Fused attention saves no T x T map."""
    settings: dict[str, Any] = {"vocab": 50, "positions": "sinusoid"}
    counted = count_cost(headwise.build(name, device="meta", **settings), length).activation_bytes
    model = headwise.build(name, **settings)
    assert counted == count_saved_bytes(model, 2, length) - count_saved_bytes(model, 1, length)


def test_activations_are_linear_in_the_length_and_quadratic_if_a_map_is_saved() -> None:
    def measure_growth(**settings: Any) -> float:
        model = headwise.build("gpt-tiny", vocab=50, positions="sinusoid", device="meta", **settings)
        return count_cost(model, 2048).activation_bytes / count_cost(model, 1024).activation_bytes

    assert measure_growth() == pytest.approx(2, rel=0.01)
    assert measure_growth(mixer={"kind": "attention", "kernel": "plain"}) > 3.5
