"""Reversible layers: outputs and gradients of the plain computation, without stored activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise.blocks.attention.multihead import Attention, CrossProjection
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.mixers.lsh import LSHAttention
from headwise.blocks.norm import LayerNorm
from headwise.blocks.positions.relative import T5Bias
from headwise.blocks.record import collect, record
from headwise.blocks.residual import PreNorm, ResidualAdd
from headwise.blocks.reversible import Branch, PassState, Reversible, run_step
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Part, Stream
from headwise.models.encoder_decoder import EncoderDecoder

WIDTH = 8
close = torch.testing.assert_close


class Routed(Part):
    """A part with a side loss, like experts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        ctx.side.add("aux", ctx.path, (self.weight * stream.x).sigmoid().mean())
        ctx.side.add("load", ctx.path, stream.x.shape[1])
        return self.weight * stream.x


def share_bias() -> Callable[[], list[nn.Module]]:
    """Layers that share one bias table, whose lookup is shared, too."""
    table = T5Bias(2, buckets=4, max_distance=8)
    return lambda: [Attention(WIDTH, 2, score_mods=[table]), FeedForward(WIDTH, 12)]


LAYERS: dict[str, Callable[[], Callable[[], list[nn.Module]]]] = {
    "attention": lambda: lambda: [Attention(WIDTH, 2), FeedForward(WIDTH, 12, dropout=0.2)],
    "lsh": lambda: lambda: [LSHAttention(WIDTH, 2, chunk=2, rounds=2), FeedForward(WIDTH, 12, chunk=3)],
    "decoder": lambda: lambda: [
        Attention(WIDTH, 2), Attention(WIDTH, 2, qkv=CrossProjection(WIDTH, 2, 4)), FeedForward(WIDTH, 12, "swiglu")
    ],
    "biased": share_bias,
    "routed": lambda: lambda: [Attention(WIDTH, 2), Routed()],
}  # fmt: skip


def build_stack(kind: str, depth: int = 3, wiring: type = Reversible, dropout: float = 0.1, dtype: Any = None) -> Stack:
    torch.manual_seed(0)
    parts = LAYERS[kind]()
    layers = [wiring(parts(), lambda: LayerNorm(WIDTH), lambda: ResidualAdd(dropout)) for _ in range(depth)]
    return Stack(layers, LayerNorm(2 * WIDTH)).to(dtype or torch.float64)


def make_inputs(dtype: torch.dtype = torch.float64, length: int = 9) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return tuple(torch.randn(2, n, WIDTH, dtype=dtype, requires_grad=True) for n in (length, 5))  # type: ignore[return-value]


def run_plainly(model: Stack, stream: Stream, ctx: Context) -> Stream:
    """The equations under plain autograd."""
    stream = stream.with_x(torch.cat((stream.x, stream.x), -1))
    for number, layer in enumerate(model.layers):
        for place, (part, norm, add) in enumerate(zip(layer.parts, layer.norms, layer.adds, strict=True)):
            stream = stream.with_x(run_step(Branch(part, norm, add.drop), stream, ctx.at(number).at(place)))
    return stream.with_x(model.final(stream.x))


def compute_gradients(model: Stack, run: Any) -> tuple[Tensor, Sequence[Tensor]]:
    """The outputs, and the gradients of some loss with respect to inputs, memory and weights."""
    x, memory = make_inputs()
    torch.manual_seed(2)
    with collect("aux") as side:
        out = run(Stream.of(x), Context({"encoder": Stream.of(memory)})).x
    loss = (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum() + sum(side.list_values("aux"))
    return out, torch.autograd.grad(loss, [x, memory, *model.parameters()], allow_unused=True)


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_are_those_of_the_plain_computation(kind: str) -> None:
    """Dropout, fresh rotations, shared tables, memories and side losses included."""
    model = build_stack(kind)
    out, grads = compute_gradients(model, model)
    expected, plain = compute_gradients(model, lambda stream, ctx: run_plainly(model, stream, ctx))
    close(out, expected, rtol=0, atol=1e-12)
    for grad, expected_grad in zip(grads, plain, strict=True):
        assert (grad is None) == (expected_grad is None)
        if grad is not None:
            close(grad, expected_grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["attention", "lsh", "decoder"])
def test_inputs_are_recovered_from_outputs(kind: str) -> None:
    model, (x, memory) = build_stack(kind, depth=8, dtype=torch.float32), make_inputs(torch.float32)
    ctx = Context({"encoder": Stream.of(memory)})
    model(Stream.of(x), ctx).x.sum().backward()
    state = ctx.shared[PassState]
    assert state.steps == 0
    assert (state.x - torch.cat((x, x), -1)).abs().max() < 1e-5


def test_it_is_the_paper_in_two_steps() -> None:
    model, (x, _) = build_stack("attention", depth=1, dropout=0.0).eval(), make_inputs()
    attention, mlp, norms = *model.layers[0].parts, model.layers[0].norms
    first = x + attention(norms[0](x))
    second = x + mlp(norms[1](first))
    close(model(Stream.of(x), Context()).x, model.final(torch.cat((first, second), -1)))


def count_saved_bytes(model: Stack, length: int = 64) -> int:
    """Bytes that a forward pass saves for the backward pass, without weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.randn(2, length, WIDTH, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(Stream.of(x), Context()).x  # alive until all is counted, so that no address is reused
    assert out.requires_grad
    return sum(size for address, size in sizes.items() if address not in weights)


def test_saved_memory_does_not_grow_with_depth() -> None:
    shallow, deep = (count_saved_bytes(build_stack("attention", depth, dtype=torch.float32)) for depth in (2, 8))
    assert shallow == deep

    def pre(depth: int) -> Stack:
        model = build_stack("attention", depth, PreNorm, dtype=torch.float32)
        model.final = LayerNorm(WIDTH)
        return model

    assert count_saved_bytes(pre(8)) > 3 * count_saved_bytes(pre(2))


def test_recomputation_is_not_recorded() -> None:
    model, (x, _) = build_stack("routed"), make_inputs()
    with record() as maps, collect("load") as side:
        ctx = Context()
        model(Stream.of(x), ctx).x.sum().backward()
    assert {path: len(weights) for path, weights in maps.weights.items()} == {(n, 0): 1 for n in range(3)}
    assert side.list_values("load") == [9, 9, 9]


def test_a_second_backward_pass_is_refused() -> None:
    model, (x, _) = build_stack("attention"), make_inputs()
    loss = model(Stream.of(x), Context()).x.sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="reversible layers: activations are recomputed once, from the last layer"):
        loss.backward()
    with collect("layer") as side:
        model(Stream.of(x), Context())
    with pytest.raises(RuntimeError, match="take gradients of the stack's outputs"):
        side.values["layer"][0,][0].x.sum().backward()


def test_an_edit_between_layers_starts_a_new_pass() -> None:
    model, (x, _) = build_stack("attention", depth=2, dropout=0.0).eval(), make_inputs()
    one, two = model.layers

    def run_edited(first: Any, second: Any) -> Tensor:
        ctx = Context()
        stream = first(Stream.of(x), ctx.at(0))
        return second(stream.with_x(2 * stream.x), ctx.at(1)).x

    def run_layer(layer: Any) -> Any:
        def run(stream: Stream, ctx: Context) -> Stream:
            if stream.x.shape[-1] == WIDTH:
                stream = stream.with_x(torch.cat((stream.x, stream.x), -1))
            for place, (part, norm, add) in enumerate(zip(layer.parts, layer.norms, layer.adds, strict=True)):
                stream = stream.with_x(run_step(Branch(part, norm, add.drop), stream, ctx.at(place)))
            return stream

        return run

    grads, expected = (
        torch.autograd.grad(run_edited(*layers).square().sum(), x)
        for layers in ((one, two), (run_layer(one), run_layer(two)))
    )
    close(grads[0], expected[0], rtol=0, atol=1e-10)


def test_frozen_weights_have_no_gradient_and_the_others_have() -> None:
    model, (x, _) = build_stack("attention"), make_inputs()
    frozen = model.layers[1].parts[0]
    frozen.requires_grad_(False)
    model(Stream.of(x.detach()), Context()).x.square().sum().backward()
    assert all(weight.grad is None for weight in frozen.parameters())
    rest = set(model.parameters()) - set(frozen.parameters())
    assert all(weight.grad is not None for weight in rest)


def test_recomputation_has_the_same_autocast_settings() -> None:
    model, (x, _) = build_stack("attention", dtype=torch.float32), make_inputs(torch.float32)
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        model(Stream.of(x), Context()).x.square().sum().backward()
    grad, x.grad = x.grad, None
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        run_plainly(model, Stream.of(x), Context()).x.square().sum().backward()
    close(grad, x.grad, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", ["transformer-tiny", "gpt2-tiny", "bert-tiny", "t5-tiny"])
@pytest.mark.parametrize("join", ["concat", "mean"])
def test_any_model_can_be_reversible(name: str, join: str) -> None:
    torch.manual_seed(0)
    model = headwise.build(name, vocab=12, wiring={"kind": "reversible", "join": join})
    ids = torch.tensor([[5, 6, 7, 8, 9, 4]])
    arguments = (ids, ids) if isinstance(model, EncoderDecoder) else (ids,)
    model(*arguments, labels=ids).total.backward()
    unused = "encoder" if name == "bert-tiny" else "nothing"
    assert all(p.grad is not None for n, p in model.named_parameters() if unused in n or unused == "nothing")
