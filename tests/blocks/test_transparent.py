"""Transparent attention: size of its weights, decoding with a cache, joins, and what it refuses. Its outputs are
compared with T5 of `transformers` in tests/parity."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.stack import count_parameters
from headwise.interop.ctranslate2_spec import find_unsupported
from headwise.models.transformer import TransformerConfig
from headwise.testing import check_model

SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, 2], [11, 4, 2, 0, 0, 0, 0]])


def build(kind: str = "t5-tiny", **settings: Any) -> Any:
    torch.manual_seed(0)
    return headwise.build(kind, **{"vocab": 12, "dropout": 0.0, "transparent_attention": True, **settings})


@pytest.mark.parametrize("settings", [{"kind": "t5-tiny"}, {"kind": "transformer-tiny", "decoder": {"shared": True}}])
def test_a_model_keeps_its_promises(settings: dict[str, Any]) -> None:
    """Cached decoding, beams, joins, padding: as of every encoder-decoder."""
    check_model(build(**settings))


def test_the_weights_are_a_column_for_each_decoder_layer() -> None:
    model = build("t5-base", device="meta", vocab=32_128)
    assert model.decoder.stack.layer_mixture.shape == (13, 12)
    assert count_parameters(model) == count_parameters(headwise.build("t5-base", device="meta")) + 13 * 12
    deep = build(encoder={"depth": 4}, decoder={"depth": 1})
    assert deep.decoder.stack.layer_mixture.shape == (5, 1)


@torch.inference_mode()
def test_all_weight_on_the_last_layer_is_the_ordinary_decoder() -> None:
    model, plain = build().eval(), build(transparent_attention=False).eval()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if k != "decoder.stack.layer_mixture"})
    target = torch.tensor([[1, 7, 8], [1, 6, 5]])
    model.decoder.stack.layer_mixture.fill_(0.0)
    assert not torch.allclose(model(SOURCE, target), plain(SOURCE, target), atol=1e-3)
    model.decoder.stack.layer_mixture[-1] = 100.0
    torch.testing.assert_close(model(SOURCE, target), plain(SOURCE, target))


def test_gradients_reach_every_weight_of_the_mixture() -> None:
    model = build()
    model(SOURCE, torch.tensor([[1, 7, 8], [1, 6, 5]])).square().sum().backward()
    assert (model.decoder.stack.layer_mixture.grad != 0).all()


def test_models_without_cross_attention_have_no_mixture() -> None:
    for task in ("language-model", "masked", "classify"):
        names = [name for name, _ in build(task=task, outputs=3 if task == "classify" else 0).named_parameters()]
        assert not [name for name in names if "mixture" in name]


@torch.inference_mode()
def test_a_classifier_that_reads_the_decoder_has_the_mixture() -> None:
    model = build(task="classify", outputs=3, labels_from="decoder").eval()
    before = model(SOURCE)
    model.decoder.stack.layer_mixture[0] += 3.0
    assert not torch.allclose(model(SOURCE), before)


def test_reversible_layers_are_refused() -> None:
    with pytest.raises(UserError, match="transparent_attention: embeddings and outputs of 'reversible' layers"):
        build("transformer-tiny", wiring="reversible")


def test_ctranslate2_refuses_it() -> None:
    assert find_unsupported(TransformerConfig(transparent_attention=True)).startswith("transparent_attention: ")
