"""S4D: its parameters, layers without feed-forward networks, both directions, and decoding of long texts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.stack import count_parameters


@pytest.mark.parametrize(("size", "width", "depth", "vocab"), [("text", 256, 6, 256), ("listops", 128, 8, 18)])
def test_it_has_the_parameters_of_its_equations(size: str, width: int, depth: int, vocab: int) -> None:
    """A channel has 32 complex states: decays and frequencies, two complex outputs for two directions, step and skip;
    a layer a linear map to twice the width and a norm."""
    channel = 2 * 32 + 2 * 2 * 32 + 2
    layer = width * channel + 2 * width * (width + 1) + 2 * width
    head = (width + 1) * vocab  # as many labels
    model = headwise.build(f"s4d-{size}", task="classify", device="meta")
    assert count_parameters(model) == depth * layer + 2 * width + vocab * width + head


def test_layers_have_no_feed_forward_network_beside_the_system() -> None:
    built: list[Any] = [headwise.build("s4d-tiny", vocab=12, task="tag", mixer=mixer) for mixer in ("s4d", "attention")]
    assert [len(model.encoder.stack.layers[0].parts) for model in built] == [1, 2]
    assert len(built[0].encoder.stack.layers[0].parts[0].system.output) == 2
    writer: Any = headwise.build("s4d-tiny", vocab=12, task="language-model")
    assert len(writer.decoder.stack.layers[0].parts[0].system.output) == 1


@torch.no_grad()
def test_decoding_of_a_long_text_equals_one_pass() -> None:
    """The prompt by an FFT, then token by token, in float64, with a state of constant size."""
    torch.manual_seed(0)
    model: Any = headwise.build("s4d-tiny", vocab=12, task="language-model", dropout=0.0).double().eval()
    ids = torch.randint(4, 12, (2, 150))
    expected = model(ids)
    state, tokens = model.start(ids[:, :135]), ids[:, 135]
    for position in range(135, 149):
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits, expected[:, position], rtol=1e-9, atol=1e-9)
        tokens = ids[:, position + 1]
    assert {tensor.shape for tensor in state.cache.states.values()} == {(2, 32, 4, 2)} and not state.cache.growing
