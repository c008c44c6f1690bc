"""The baseline of Narang et al. against T5 of `transformers`, with torch's LayerNorm and biases in its networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import headwise
from headwise.blocks.positions.relative import T5Bias
from headwise.testing import assert_parity, perturb_parameters
from headwise.text import BOS, EOS, PAD

VOCAB, WIDTH, HEADS, HEAD_WIDTH, HIDDEN = 29, 32, 4, 6, 48
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, EOS], [11, 12, EOS, PAD, PAD, PAD, PAD]])
TARGET = torch.tensor([[BOS, 7, 8, 9, 10], [BOS, 6, 5, 5, 4]])


def build_reference(activation: str) -> Any:
    """T5 whose norms and feed-forward networks are those of the baseline."""
    config = transformers.T5Config(
        vocab_size=VOCAB, d_model=WIDTH, d_kv=HEAD_WIDTH, d_ff=HIDDEN, num_layers=2, num_heads=HEADS,
        feed_forward_proj=activation, decoder_start_token_id=0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval().double()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "T5LayerNorm":
                setattr(module, name, nn.LayerNorm(WIDTH, eps=1e-6, dtype=torch.float64))
            elif name in ("wi", "wi_0", "wi_1", "wo"):
                setattr(module, name, nn.Linear(child.in_features, child.out_features, dtype=torch.float64))
    return model


def copy(ours: nn.Module, theirs: nn.Module, rows: slice = slice(None)) -> None:
    theirs.weight.data.copy_(ours.weight[rows])
    if theirs.bias is not None:
        theirs.bias.data.copy_(ours.bias[rows])


def copy_network(ours: Any, theirs: Any) -> None:
    if ours.gated:
        copy(ours.inner, theirs.wi_0, slice(HIDDEN))
        copy(ours.inner, theirs.wi_1, slice(HIDDEN, None))
    else:
        copy(ours.inner, theirs.wi)
    copy(ours.outer, theirs.wo)


def copy_attention(ours: Any, theirs: Any) -> None:
    weight = ours.qkv.project.weight
    if ours.qkv.is_cross:
        weight = torch.cat((ours.qkv.query.weight, weight))
    for block, linear in zip(weight.chunk(3), (theirs.q, theirs.k, theirs.v), strict=True):
        linear.weight.data.copy_(block)
    copy(ours.out, theirs.o)


def copy_stack(ours: Any, theirs: Any) -> None:
    (bias,) = {module for module in ours.modules() if isinstance(module, T5Bias)}
    theirs.block[0].layer[0].SelfAttention.relative_attention_bias.weight.data.copy_(bias.table.weight)
    for layer, block in zip(ours.layers, theirs.block, strict=True):
        for part, norm, sublayer in zip(layer.parts, layer.norms, block.layer, strict=True):
            copy(norm, sublayer.layer_norm)
            if hasattr(part, "inner"):
                copy_network(part, sublayer.DenseReluDense)
            else:
                copy_attention(part, getattr(sublayer, "EncDecAttention" if part.qkv.is_cross else "SelfAttention"))
    copy(ours.final, theirs.final_layer_norm)


@pytest.mark.parametrize(("activation", "theirs"), [("relu", "relu"), ("geglu_tanh", "gated-gelu")])
def test_outputs_are_those_of_t5_with_layer_norm_and_biases(activation: str, theirs: str) -> None:
    torch.manual_seed(0)
    sizes = {"width": WIDTH, "heads": HEADS, "head_width": HEAD_WIDTH, "hidden": HIDDEN, "depth": 2}
    model: Any = perturb_parameters(headwise.build("t5-narang-tiny", vocab=VOCAB, activation=activation, **sizes))
    model = model.double().eval()
    reference = build_reference(theirs)
    reference.shared.weight.data.copy_(model.encoder.embed.table.weight)
    copy_stack(model.encoder.stack, reference.encoder)
    copy_stack(model.decoder.stack, reference.decoder)

    def run_reference() -> Tensor:
        outputs = reference(input_ids=SOURCE, attention_mask=(SOURCE != PAD).long(), decoder_input_ids=TARGET)
        return outputs.logits

    with torch.no_grad():
        assert_parity(model(SOURCE, TARGET), run_reference())
