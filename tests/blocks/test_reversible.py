"""Reversible layers (E1): the plain computation's outputs and gradients, from activations that nobody kept."""

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
from headwise.blocks.reversible import Branch, Journey, Reversible, step
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Part, Stream

WIDTH = 8
close = torch.testing.assert_close


class Routed(Part):
    """Something with a side loss, as experts have."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        ctx.side.add("aux", ctx.path, (self.weight * stream.x).sigmoid().mean())
        ctx.side.add("load", ctx.path, stream.x.shape[1])
        return self.weight * stream.x


def biased() -> Callable[[], list[nn.Module]]:
    """Layers that share one table of biases, which is looked up once for all of them."""
    table = T5Bias(2, buckets=4, max_distance=8)
    return lambda: [Attention(WIDTH, 2, score_mods=[table]), FeedForward(WIDTH, 12)]


LAYERS: dict[str, Callable[[], Callable[[], list[nn.Module]]]] = {
    "attention": lambda: lambda: [Attention(WIDTH, 2), FeedForward(WIDTH, 12, dropout=0.2)],
    "lsh": lambda: lambda: [LSHAttention(WIDTH, 2, chunk=2, rounds=2), FeedForward(WIDTH, 12, chunk=3)],
    "decoder": lambda: lambda: [
        Attention(WIDTH, 2), Attention(WIDTH, 2, qkv=CrossProjection(WIDTH, 2, 4)), FeedForward(WIDTH, 12, "swiglu")
    ],
    "biased": biased,
    "routed": lambda: lambda: [Attention(WIDTH, 2), Routed()],
}  # fmt: skip


def stack(kind: str, depth: int = 3, wiring: type = Reversible, dropout: float = 0.1, dtype: Any = None) -> Stack:
    torch.manual_seed(0)
    parts = LAYERS[kind]()
    layers = [wiring(parts(), lambda: LayerNorm(WIDTH), lambda: ResidualAdd(dropout)) for _ in range(depth)]
    return Stack(layers, LayerNorm(2 * WIDTH)).to(dtype or torch.float64)


def inputs(dtype: torch.dtype = torch.float64, length: int = 9) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return tuple(torch.randn(2, n, WIDTH, dtype=dtype, requires_grad=True) for n in (length, 5))  # type: ignore[return-value]


def plainly(model: Stack, stream: Stream, ctx: Context) -> Stream:
    """The equations under autograd, activations and all."""
    stream = stream.with_x(torch.cat((stream.x, stream.x), -1))
    for number, layer in enumerate(model.layers):
        for place, (part, norm, add) in enumerate(zip(layer.parts, layer.norms, layer.adds, strict=True)):
            stream = stream.with_x(step(Branch(part, norm, add.drop), stream, ctx.at(number).at(place)))
    return stream.with_x(model.final(stream.x))


def learnt(model: Stack, run: Any) -> tuple[Tensor, Sequence[Tensor]]:
    """The outputs, and the gradients of some loss with respect to inputs, memory and weights."""
    x, seen = inputs()
    torch.manual_seed(2)
    with collect("aux") as side:
        out = run(Stream.of(x), Context({"encoder": Stream.of(seen)})).x
    loss = (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum() + sum(side.list_values("aux"))
    return out, torch.autograd.grad(loss, [x, seen, *model.parameters()], allow_unused=True)


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_are_those_of_the_plain_computation(kind: str) -> None:
    """Dropout, fresh rotations, shared tables, memories and side losses included."""
    model = stack(kind)
    out, grads = learnt(model, model)
    expected, plain = learnt(model, lambda stream, ctx: plainly(model, stream, ctx))
    close(out, expected, rtol=0, atol=1e-12)
    for found, wanted in zip(grads, plain, strict=True):
        assert (found is None) == (wanted is None)
        if found is not None:
            close(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["attention", "lsh", "decoder"])
def test_inputs_come_back_from_outputs(kind: str) -> None:
    model, (x, seen) = stack(kind, depth=8, dtype=torch.float32), inputs(torch.float32)
    ctx = Context({"encoder": Stream.of(seen)})
    model(Stream.of(x), ctx).x.sum().backward()
    found = ctx.shared[Journey]
    assert found.steps == 0
    assert (found.x - torch.cat((x, x), -1)).abs().max() < 1e-5


def test_it_is_the_paper_in_two_steps() -> None:
    model, (x, _) = stack("attention", depth=1, dropout=0.0).eval(), inputs()
    attention, mlp, norms = *model.layers[0].parts, model.layers[0].norms
    first = x + attention(norms[0](x))
    second = x + mlp(norms[1](first))
    close(model(Stream.of(x), Context()).x, model.final(torch.cat((first, second), -1)))


def kept(model: Stack, length: int = 64) -> int:
    """Bytes that a pass keeps for the gradient, weights apart."""
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.randn(2, length, WIDTH, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(Stream.of(x), Context()).x  # held until all is counted, so that no storage is counted twice
    assert out.requires_grad
    return sum(size for where, size in found.items() if where not in own)


def test_what_is_kept_does_not_grow_with_depth() -> None:
    shallow, deep = (kept(stack("attention", depth, dtype=torch.float32)) for depth in (2, 8))
    assert shallow == deep

    def pre(depth: int) -> Stack:
        model = stack("attention", depth, PreNorm, dtype=torch.float32)
        model.final = LayerNorm(WIDTH)
        return model

    assert kept(pre(8)) > 3 * kept(pre(2))


def test_only_the_first_pass_is_seen() -> None:
    model, (x, _) = stack("routed"), inputs()
    with record() as maps, collect("load") as side:
        ctx = Context()
        model(Stream.of(x), ctx).x.sum().backward()
    assert {place: len(found) for place, found in maps.weights.items()} == {(n, 0): 1 for n in range(3)}
    assert side.list_values("load") == [9, 9, 9]


def test_a_second_way_back_is_refused() -> None:
    model, (x, _) = stack("attention"), inputs()
    loss = model(Stream.of(x), Context()).x.sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="reversible layers go back once, from the last to the first"):
        loss.backward()
    with collect("layer") as side:
        model(Stream.of(x), Context())
    with pytest.raises(RuntimeError, match="take gradients of the stack's outputs"):
        side.values["layer"][0,][0].x.sum().backward()


def test_what_was_changed_between_layers_begins_a_new_journey() -> None:
    model, (x, _) = stack("attention", depth=2, dropout=0.0).eval(), inputs()
    one, two = model.layers

    def changed(first: Any, second: Any) -> Tensor:
        ctx = Context()
        stream = first(Stream.of(x), ctx.at(0))
        return second(stream.with_x(2 * stream.x), ctx.at(1)).x

    def by_hand(layer: Any) -> Any:
        def run(stream: Stream, ctx: Context) -> Stream:
            if stream.x.shape[-1] == WIDTH:
                stream = stream.with_x(torch.cat((stream.x, stream.x), -1))
            for place, (part, norm, add) in enumerate(zip(layer.parts, layer.norms, layer.adds, strict=True)):
                stream = stream.with_x(step(Branch(part, norm, add.drop), stream, ctx.at(place)))
            return stream

        return run

    found, expected = (
        torch.autograd.grad(changed(*layers).square().sum(), x) for layers in ((one, two), (by_hand(one), by_hand(two)))
    )
    close(found[0], expected[0], rtol=0, atol=1e-10)


def test_frozen_weights_have_no_gradient_and_the_others_have() -> None:
    model, (x, _) = stack("attention"), inputs()
    frozen = model.layers[1].parts[0]
    frozen.requires_grad_(False)
    model(Stream.of(x.detach()), Context()).x.square().sum().backward()
    assert all(weight.grad is None for weight in frozen.parameters())
    rest = set(model.parameters()) - set(frozen.parameters())
    assert all(weight.grad is not None for weight in rest)


def test_low_precision_is_computed_again_as_it_was() -> None:
    model, (x, _) = stack("attention", dtype=torch.float32), inputs(torch.float32)
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        model(Stream.of(x), Context()).x.square().sum().backward()
    found, x.grad = x.grad, None
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        plainly(model, Stream.of(x), Context()).x.square().sum().backward()
    close(found, x.grad, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", ["transformer-tiny", "gpt2-tiny", "bert-tiny", "t5-tiny"])
@pytest.mark.parametrize("join", ["concat", "mean"])
def test_any_model_may_be_reversible(name: str, join: str) -> None:
    torch.manual_seed(0)
    model = headwise.build(name, vocab=12, wiring={"kind": "reversible", "join": join})
    ids = torch.tensor([[5, 6, 7, 8, 9, 4]])
    given = (ids, ids) if hasattr(model, "encoder") and hasattr(model, "decoder") else (ids,)
    model(*given, labels=ids).total.backward()
    unused = "encoder" if name == "bert-tiny" else "nothing"
    assert all(p.grad is not None for n, p in model.named_parameters() if unused in n or unused == "nothing")
