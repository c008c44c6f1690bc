"""ConvS2S against its layers in torch (Conv1d with torch's weight_norm), and against its equations, token by token."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import headwise
from headwise.blocks.gated_convolution import GatedConvolution
from headwise.blocks.weight_norm import WeightNormLinear
from headwise.testing import assert_parity, perturb_parameters

VOCAB, OUTPUTS, EMBEDDING = 15, 13, 16
HALF = 0.5**0.5
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, 2], [11, 12, 13, 2, 0, 0, 0]])
TARGET = torch.tensor([[1, 7, 8, 9, 10, 4], [1, 6, 5, 5, 4, 3]])


def build() -> Any:
    torch.manual_seed(0)
    layers = [{"width": 12, "kernel": 3}, {"width": 10, "kernel": 5}, {"width": 10, "kernel": 1}]
    sides = {"encoder": layers, "decoder": [*layers, {"width": 10, "kernel": 4}]}
    return perturb_parameters(headwise.build("convs2s-tiny", vocab=VOCAB, outputs=OUTPUTS, **sides))


def copy_linear(part: WeightNormLinear) -> nn.Linear:
    """torch's linear layer with the weights of ours."""
    linear = weight_norm(nn.Linear(part.weight.shape[1], part.weight.shape[0]).double())
    set_weights(linear, part, part.weight)
    return linear


def copy_convolution(part: GatedConvolution) -> nn.Conv1d:
    """torch's convolution with the weights of ours."""
    linear, kernel = part.convolution.linear, part.convolution.kernel
    assert isinstance(linear, WeightNormLinear)
    outputs, columns = linear.weight.shape
    convolution = weight_norm(nn.Conv1d(columns // kernel, outputs, kernel).double())
    set_weights(convolution, linear, linear.weight.view(outputs, kernel, -1).mT)  # (O, KC) -> (O, C, K)
    return convolution


def set_weights(module: Any, part: WeightNormLinear, direction: Tensor) -> None:
    originals = module.parametrizations.weight
    originals.original0.data = part.gain.detach().view(originals.original0.shape)
    originals.original1.data = direction.detach()
    module.bias.data = part.bias.detach()


def convolve(part: GatedConvolution, x: Tensor, causal: bool) -> Tensor:
    others = part.convolution.kernel - 1
    padded = F.pad(x.mT, (others, 0) if causal else (others // 2, others // 2))
    values, gates = copy_convolution(part)(padded).mT.chunk(2, -1)
    return values * gates.sigmoid()


def encode(model: Any, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    stack, keep = model.encoder.stack, (ids != 0).unsqueeze(-1)
    embedding = model.encoder.embed.table(ids) + model.encoder.embed.positions.table[: ids.shape[1]]
    x = copy_linear(stack.first)(embedding)
    for layer in stack.layers:
        residual = copy_linear(layer.residual)(x) if isinstance(layer.residual, WeightNormLinear) else x
        x = (convolve(layer.parts[0], x * keep, causal=False) + residual) * HALF
    z = copy_linear(stack.final)(x)
    return z, (z + embedding) * HALF, keep


def decode(model: Any, ids: Tensor, keys: Tensor, values: Tensor, keep: Tensor) -> Tensor:
    stack, lengths = model.decoder.stack, keep.sum(1, keepdim=True)
    embedding = model.decoder.embed.table(ids) + model.decoder.embed.positions.table[: ids.shape[1]]
    x = copy_linear(stack.first)(embedding)
    for layer in stack.layers:
        residual = copy_linear(layer.residual)(x) if isinstance(layer.residual, WeightNormLinear) else x
        convolution, attention = layer.parts
        h = convolve(convolution, x, causal=True)
        query = (copy_linear(attention.query)(h) + embedding) * HALF
        weights = (query @ keys.mT).masked_fill(~keep.mT, float("-inf")).softmax(-1)
        context = weights @ values * (lengths * (1 / lengths).sqrt())
        h = (copy_linear(attention.out)(context) + h) * HALF
        x = (h + residual) * HALF
    head = model.decoder.head
    output = nn.Linear(head.table.embedding_dim, OUTPUTS).double()
    output.load_state_dict({"weight": head.table.weight, "bias": head.bias})
    output = weight_norm(output)
    output.parametrizations.weight.original0.data = head.gain.detach().unsqueeze(-1)
    logits: Tensor = output(copy_linear(stack.final[0])(x))
    return logits


@torch.no_grad()
def test_logits_are_those_of_the_layers_in_torch() -> None:
    model = build()
    assert_parity(model(SOURCE, TARGET), decode(model, TARGET, *encode(model, SOURCE)))


def apply(part: WeightNormLinear, x: Tensor) -> Tensor:
    """g_i v_i x / |v_i| + b_i, row by row."""
    rows = zip(part.weight, part.gain, part.bias, strict=True)
    return torch.stack([g * (v @ x) / v.square().sum().sqrt() + b for v, g, b in rows])


def gate(part: GatedConvolution, xs: list[Tensor], t: int, first: int) -> Tensor:
    """The gated convolution of token t, whose window begins at token `first`."""
    kernel, zero = part.convolution.kernel, torch.zeros_like(xs[0])
    window = torch.cat([xs[i] if 0 <= i < len(xs) else zero for i in range(first, first + kernel)])
    assert isinstance(part.convolution.linear, WeightNormLinear)
    values, gates = apply(part.convolution.linear, window).chunk(2)
    return values / (1 + torch.exp(-gates))


def residual(layer: Any, x: Tensor) -> Tensor:
    return apply(layer.residual, x) if isinstance(layer.residual, WeightNormLinear) else x


@torch.no_grad()
def test_logits_are_those_of_the_equations_token_by_token() -> None:
    model, row = build(), 1
    source, target = SOURCE[row][:4].tolist(), TARGET[row].tolist()
    sides = (model.encoder, source), (model.decoder, target)
    e, g = (
        [side.embed.table.weight[v] + side.embed.positions.table[j] for j, v in enumerate(ids)] for side, ids in sides
    )
    xs = [apply(model.encoder.stack.first, vector) for vector in e]
    for layer in model.encoder.stack.layers:
        part = layer.parts[0]
        reach = (part.convolution.kernel - 1) // 2
        xs = [(gate(part, xs, t, t - reach) + residual(layer, x)) * HALF for t, x in enumerate(xs)]
    z = [apply(model.encoder.stack.final, x) for x in xs]
    ys = [apply(model.decoder.stack.first, vector) for vector in g]
    for layer in model.decoder.stack.layers:
        part, attention = layer.parts
        outputs = []
        for t, y in enumerate(ys):
            h = gate(part, ys, t, t - part.convolution.kernel + 1)
            d = (apply(attention.query, h) + g[t]) * HALF
            scores = torch.stack([torch.exp(d @ key) for key in z])
            summands = [a * (key + vector) * HALF for a, key, vector in zip(scores / scores.sum(), z, e, strict=True)]
            c = len(z) * (1 / len(z)) ** 0.5 * torch.stack(summands).sum(0)
            outputs.append(((apply(attention.out, c) + h) * HALF + residual(layer, y)) * HALF)
        ys = outputs
    head = model.decoder.head
    lengths = head.table.weight.square().sum(1).sqrt()
    expected = [
        head.gain * (head.table.weight @ apply(model.decoder.stack.final[0], y)) / lengths + head.bias for y in ys
    ]
    assert_parity(model(SOURCE, TARGET)[row], torch.stack(expected))
