"""The Evolved Transformer: its parameter counts, those of Narang et al. (2021) in T5, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.part import BuildContext
from headwise.blocks.stack import count_parameters
from headwise.blocks.tables import PARTS
from headwise.config.base import validate
from headwise.models.cost import count_cost

SELF, WIDE = {"kind": "attention", "score": "dot"}, {"kind": "attention", "score": "dot", "heads": 24}
CROSS = {"kind": "attention", "score": "dot", "attend_to": "memory"}
NARANG: dict[str, Any] = {  # in T5
    "encoder": {"depth": 6, "layers": [["glu", "conv_branches", SELF, "mlp"]]},
    "decoder": {
        "depth": 6,
        "layers": [
            [
                {"kind": "sum", "parts": [WIDE, CROSS]},
                "conv_branches",
                SELF,
                CROSS,
                {"kind": "mlp", "activation": "swish"},
            ]
        ],
    },
}


def count_by_formula(width: int, vocab: int) -> int:
    """3 encoder and 4 decoder blocks as tensor2tensor builds them: attention without biases, norms with gain and bias,
    biases in dense layers and convolutions."""
    square, norm = width * width, 2 * width
    feedforward = 8 * square + 5 * width
    branches = (4 * square + 4 * width) + (3 * square // 2 + width // 2) + 8 * width  # dense, convolution of 3, norm
    branches += 9 * 4 * width + 2 * square + width // 2  # separable convolution of 9
    encoder = (2 * square + 2 * width) + branches + 4 * square + feedforward + 4 * norm
    branches = (11 * width + 2 * square + 2 * width) + (7 * width + square // 2 + width // 2) + 4 * width
    branches += 7 * 2 * width + 2 * square + width
    decoder = 4 * 4 * square + branches + feedforward + 8 * width + 5 * norm
    return 3 * encoder + 4 * decoder + 2 * norm + vocab * width


@pytest.mark.parametrize(("size", "width"), [("base", 512), ("big", 1024)])
def test_parameter_counts_are_those_of_the_blocks(size: str, width: int) -> None:
    model = headwise.build(f"evolved-transformer-{size}", vocab=33_288, device="meta")
    assert count_parameters(model) == count_by_formula(width, 33_288)


def test_matrices_in_t5_are_those_of_narang_et_al() -> None:
    model = headwise.build("t5-base", device="meta", **NARANG)
    matrices = {name: p for name, p in model.named_parameters() if p.dim() > 1 and "score_mods" not in name}
    assert sum(parameter.numel() for parameter in matrices.values()) == 216_090_624
    assert count_cost(headwise.build("t5-tiny", device="meta", **NARANG)).flops_per_token > 0


def test_a_language_model_has_the_decoder_without_cross_attention() -> None:
    model = headwise.build("evolved-transformer-tiny", vocab=12, task="language-model")
    parts = [type(part).__name__ for part in model.decoder.stack.layers[0].parts]
    assert parts == ["Attention", "ConvolutionBranches", "Attention", "HiddenNormFeedForward"]
    assert model.decoder.stack.layers[0].parts[0].qkv.heads == 16
    assert [branch.weight.shape[1] for branch in model.decoder.stack.layers[0].parts[1].branches] == [11, 7]


def test_a_narrow_output_leaves_the_other_channels_of_the_residual() -> None:
    part: Any = PARTS.parse("conv_branches").build(BuildContext(width=8, heads=2, hidden=8))
    outputs = part(torch.randn(1, 5, 8))
    assert outputs[..., :4].all() and not outputs[..., 4:].any()


def test_the_state_of_a_decoder_has_the_inputs_of_each_kernel() -> None:
    model = headwise.build("evolved-transformer-tiny", vocab=12).eval()
    state = model.start(torch.tensor([[5, 6, 2]]))
    for token in (1, 5, 6):
        model.step(torch.tensor([token]), state)
    shapes = {path[-1]: tuple(value.shape) for path, value in state.cache.states.items()}
    assert shapes == {0: (1, 10, 32), 1: (1, 6, 32), "out": (1, 6, 64)}


def test_even_kernels_in_an_encoder_and_wide_outputs_are_refused() -> None:
    encoder, decoder = BuildContext(8, 2, 8), BuildContext(8, 2, 8, causal=True)
    for config in (
        {"kind": "separable_conv", "kernel": 4},
        {"kind": "conv_branches", "branches": [{"kernel": 4}], "out": {}},
    ):
        part = PARTS.parse(config)
        with pytest.raises(UserError, match=f"{part.kind}: a kernel of 4 tokens has no centre in an encoder"):
            part.build(encoder)
        part.build(decoder)
    with pytest.raises(UserError, match=r"conv_branches: out\.expand = 2 exceeds the width"):
        PARTS.parse({"kind": "conv_branches", "branches": [{"kernel": 3}], "out": {"expand": 2}}).build(encoder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"branches": [{"kernel": 3}]}, "belong together"), ({"branches": [{}], "out": {}}, "mix no tokens")],
)
def test_incomplete_branches_are_refused(settings: dict[str, Any], message: str) -> None:
    config = type(PARTS.parse("conv_branches"))
    with pytest.raises(UserError, match=message):
        validate(config, {"kind": "conv_branches", **settings}, "here")
