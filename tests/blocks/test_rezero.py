"""ReZero and Fixup: their formulas, the identity at initialisation, and Fixup's variances."""

from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm
from headwise.blocks.part import BuildContext
from headwise.blocks.residual import LayerScaleAdd
from headwise.blocks.rezero import Fixup, ReZero, ReZeroNorm, Shift, init_fixup
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import PARTS
from headwise.testing import check_model, perturb_parameters

close = torch.testing.assert_close
WIRINGS: list[dict[str, Any]] = [{"kind": "rezero"}, {"kind": "rezero", "norm": True}, {"kind": "fixup"}]
IN_ENCODERS: dict[str, dict[str, Any]] = {
    "attention": {}, "mlp": {}, "experts": {"count": 2}, "linear": {}, "performer": {}, "linformer": {},
    "nystromformer": {}, "bigbird": {"block": 2}, "local": {"block": 2}, "lsh": {"chunk": 2}, "workspace": {},
    "gmlp": {}, "fourier": {}, "s4d": {}, "gru": {}, "lstm": {}, "retention": {}, "tokens": {"max_length": 6},
}  # fmt: skip


def build_parts() -> list[FeedForward]:
    return [FeedForward(8, 12), FeedForward(8, 12, "gelu")]


def test_wirings_are_their_formulas() -> None:
    x, parts = torch.randn(2, 3, 8), build_parts()
    one, two = parts
    alone, normed, fixup = (wiring(parts, lambda: LayerNorm(8)) for wiring in (ReZero, ReZeroNorm, Fixup))
    for wiring in (alone, normed, fixup):
        for parameter in (*wiring.norms.parameters(), *wiring.adds.parameters()):
            torch.nn.init.uniform_(parameter, 0.5, 2.0)
    inner = x + alone.adds[0].scale * one(x)
    close(alone(Stream.of(x), Context()).x, inner + alone.adds[1].scale * two(inner))
    inner = x + normed.adds[0].scale * one(normed.norms[0](x))
    close(normed(Stream.of(x), Context()).x, inner + normed.adds[1].scale * two(normed.norms[1](inner)))
    inner = x + fixup.adds[0].scale * one(x + fixup.norms[0].bias)
    close(fixup(Stream.of(x), Context()).x, inner + fixup.adds[1].scale * two(inner + fixup.norms[1].bias))


def test_rezero_has_one_number_for_each_part_and_no_norm() -> None:
    layer = ReZero(build_parts(), lambda: LayerNorm(8))
    assert sum(parameter.numel() for parameter in layer.adds.parameters()) == 2
    assert not list(layer.norms.parameters())
    assert ReZero.build_final_norm(lambda: LayerNorm(8)) is None
    assert isinstance(ReZeroNorm.build_final_norm(lambda: LayerNorm(8)), LayerNorm)
    assert isinstance(Fixup.build_final_norm(lambda: LayerNorm(8)), Shift)


def test_a_layer_scale_multiplies_the_branch_too() -> None:
    parts, x = build_parts(), torch.randn(1, 2, 8)
    layer = ReZero(parts[:1], lambda: LayerNorm(8), lambda: LayerScaleAdd(8, 0.5))
    torch.nn.init.constant_(layer.adds[0].scale, 3.0)
    close(layer(Stream.of(x), Context()).x, x + 1.5 * parts[0](x))


@pytest.mark.parametrize("wiring", WIRINGS, ids=str)
@pytest.mark.parametrize("name", ["t5", "transformer", "gpt2", "bert", "vit", "perceiver", "retnet"])
def test_every_layer_is_the_identity_at_initialisation(name: str, wiring: dict[str, Any]) -> None:
    """Whatever the model's own initialisation, and with a gradient that moves it."""
    model = headwise.build(f"{name}-tiny", **({} if name == "vit" else {"vocab": 12}), wiring=wiring).eval()
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    x = torch.randn(2, 4, stacks[-1].layers[-1].parts[-1].inner.in_features, requires_grad=True)
    memory = {"encoder": Stream.of(torch.randn(2, 3, x.shape[-1]))}
    layer = stacks[-1].layers[-1]
    outputs = layer(Stream.of(x), Context(memory)).x
    close(outputs, x, rtol=0, atol=0)
    outputs.square().sum().backward()
    moving = [parameter for parameter in layer.parameters() if parameter.grad is not None and parameter.grad.any()]
    assert len(moving) >= len(layer.parts)


@pytest.mark.parametrize("kind", IN_ENCODERS)
def test_fixup_is_the_identity_around_every_part(kind: str) -> None:
    part = PARTS.parse({"kind": kind, **IN_ENCODERS[kind]}).build(BuildContext(width=8, heads=2, hidden=16))
    stack = Stack([Fixup([part], lambda: LayerNorm(8))])
    init_fixup(stack)
    x = torch.randn(2, 6, 8)
    close(stack.eval()(Stream.of(x), Context()).x, x, rtol=0, atol=0)


@pytest.mark.parametrize("shared", [False, True])
def test_fixup_scales_he_initialisation_by_the_number_of_branches(shared: bool) -> None:
    """3 x 2 branches in the encoder and 3 x 3 in the decoder, also where layers share their weights."""
    stack = {"depth": 3, "shared": shared}
    model = headwise.build(
        "t5-tiny", vocab=12, wiring="fixup", width=256, hidden=256, head_width=64, encoder=stack, decoder=stack
    )
    attention, cross, network = model.decoder.stack.layers[0].parts
    he, branches = (2 / 256) ** 0.5, 15
    for weight in (attention.qkv.project.weight, cross.qkv.query.weight, cross.qkv.project.weight):
        close(weight.std().item(), he * branches ** (-1 / 6), rtol=0.02, atol=0)
    close(network.inner.weight.std().item(), he * branches**-0.5, rtol=0.02, atol=0)
    assert not any(part.out.weight.any() for part in (attention, cross)) and not network.outer.weight.any()


@pytest.mark.parametrize("wiring", WIRINGS, ids=str)
def test_models_decode_with_a_cache(wiring: dict[str, Any]) -> None:
    torch.manual_seed(0)
    check_model(perturb_parameters(headwise.build("t5-tiny", vocab=12, dropout=0.0, wiring=wiring)))
