"""RetNet: published sizes, decays of its heads, initial weights, and generation beyond the length of training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.stack import count_parameters


@pytest.mark.parametrize(
    ("size", "width", "depth"), [("1.3b", 2048, 24), ("2.7b", 2560, 32), ("6.7b", 4096, 32)]
)  # fmt: skip
def test_it_has_the_published_parameters(size: str, width: int, depth: int) -> None:
    """A layer has 12 d^2: 8 of retention and 4 of the feed-forward network; two norms in each, one at the end."""
    model: Any = headwise.build(f"retnet-{size}", device="meta")
    count = count_parameters(model)
    assert count == depth * (12 * width**2 + 4 * width) + 2 * width + 64_000 * width
    assert f"{count / 1e9:.1f}b" == size
    retention = model.decoder.stack.layers[0].parts[0]
    assert count_parameters(retention) == 8 * width**2
    assert retention.head_width == 256 and retention.value_width == 512 and retention.heads == width // 256


def test_projections_of_retention_are_initialised_with_a_small_gain() -> None:
    torch.manual_seed(0)
    model: Any = headwise.build("retnet-tiny", vocab=12)
    retention = model.decoder.stack.layers[0].parts[0]
    query, _, value = retention.qkv.project.weight.split(retention.qkv.rows)
    for weight, gain in (
        (query, 2**-2.5),
        (value, 2**-2.5),
        (retention.gate.weight, 2**-2.5),
        (retention.out.weight, 1),
    ):
        bound = gain * (6 / sum(weight.shape)) ** 0.5
        assert 0.9 * bound < weight.abs().max() <= bound


@torch.no_grad()
def test_decoding_of_a_long_text_equals_one_pass() -> None:
    """Longer than a chunk, in float64, with a state of constant size."""
    torch.manual_seed(0)
    model: Any = headwise.build("retnet-tiny", vocab=12, dropout=0.0).double().eval()
    ids = torch.randint(4, 12, (2, 150))
    expected = model(ids)
    state, tokens = model.start(ids[:, :135]), ids[:, 135]
    for position in range(135, 149):
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits, expected[:, position], rtol=1e-9, atol=1e-9)
        tokens = ids[:, position + 1]
    assert {tensor.shape for tensor in state.cache.states.values()} == {(2, 4, 8, 16)} and not state.cache.growing
