"""ByteNet against its blocks in torch (Conv1d with a dilation), and against its equations, token by token."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwise
from headwise.blocks.dilated_convolution import DilatedConvolution, MultiplicativeUnit
from headwise.blocks.mixers.convolution_branches import TokenConvolution
from headwise.testing import assert_parity, perturb_parameters

VOCAB, OUTPUTS = 15, 13
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, 2], [11, 12, 13, 2, 0, 0, 0]])
TARGET = torch.tensor([[1, 7, 8, 9, 10, 4, 5, 6, 6, 7, 5], [1, 6, 5, 5, 4, 3, 9, 8, 9, 8, 8]])  # past both bounds
BLOCKS = pytest.mark.parametrize("block", ["relu", "multiplicative"])


def build(block: str) -> Any:
    torch.manual_seed(0)
    settings = {"width": 10, "depth": 5, "dilations": [1, 2, 4], "block": block, "length_ratio": 1.2, "extra_length": 1}
    return perturb_parameters(headwise.build("bytenet-tiny", vocab=VOCAB, outputs=OUTPUTS, **settings))


def normalise(x: Tensor, norm: Any) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def convolve(part: TokenConvolution, x: Tensor, causal: bool) -> Tensor:
    """torch's convolution with the weights of ours."""
    outputs, columns = part.linear.weight.shape  # type: ignore[misc, union-attr]
    theirs = nn.Conv1d(columns // part.kernel, outputs, part.kernel, dilation=part.dilation).double()
    weight = part.linear.weight.view(outputs, part.kernel, -1).mT  # type: ignore[union-attr, operator]
    theirs.load_state_dict({"weight": weight, "bias": part.linear.bias})
    others = (part.kernel - 1) * part.dilation
    result: Tensor = theirs(F.pad(x.mT, (others, 0) if causal else (others // 2, others // 2))).mT
    return result


def run_block(layer: Any, x: Tensor, keep: Tensor, causal: bool) -> Tensor:
    part = layer.parts[0]
    h = normalise(part.inner(normalise(x, layer.norms[0]).relu()), part.norm)
    if isinstance(part, MultiplicativeUnit):
        first, second, third, update = convolve(part.convolution, h * keep, causal).chunk(4, -1)
        branch = first.sigmoid() * torch.tanh(second.sigmoid() * h + third.sigmoid() * update.tanh())
    else:
        branch = normalise(convolve(part.convolution, h.relu() * keep, causal), part.out_norm).relu()
    return x + part.out(branch)


@BLOCKS
@torch.no_grad()
def test_logits_are_those_of_the_blocks_in_torch(block: str) -> None:
    model = build(block)
    lengths = [ceil(1.2 * 7) + 1, ceil(1.2 * 4) + 1]
    x = torch.zeros(2, max(lengths), 10).double()
    x[0, :7], x[1, :4] = model.encoder.embed.table(SOURCE[0]), model.encoder.embed.table(SOURCE[1, :4])
    keep = torch.stack([torch.arange(max(lengths)) < length for length in lengths]).unsqueeze(-1)
    for layer in model.encoder.stack.layers:
        x = run_block(layer, x, keep, causal=False)
    y = model.decoder.embed.table(TARGET)
    y = y + F.pad(x * keep, (0, 0, 0, TARGET.shape[1] - max(lengths)))
    for layer in model.decoder.stack.layers:
        y = run_block(layer, y, torch.ones(1, 1, 1), causal=True)
    y = normalise(y, model.decoder.stack.final[0]).relu()
    head = model.decoder.head
    assert_parity(model(SOURCE, TARGET), F.linear(y, head.table.weight, head.bias))


def standardise(x: Tensor, norm: Any) -> Tensor:
    centred = x - x.sum() / len(x)
    return norm.weight * centred / (centred.square().sum() / len(x) + norm.eps).sqrt() + norm.bias


def unroll(layer: Any, xs: list[Tensor], causal: bool) -> list[Tensor]:
    """One residual block of all tokens of a row."""
    part: DilatedConvolution = layer.parts[0]
    inner, out, linear = (module for module in (part.inner, part.out, part.convolution.linear))
    kernel, dilation = part.convolution.kernel, part.convolution.dilation
    hs = [standardise(inner.weight @ standardise(x, layer.norms[0]).clamp(min=0) + inner.bias, part.norm) for x in xs]
    read = hs if isinstance(part, MultiplicativeUnit) else [h.clamp(min=0) for h in hs]
    first = -(kernel - 1) if causal else -(kernel - 1) // 2
    outputs = []
    for t, (x, h) in enumerate(zip(xs, hs, strict=True)):
        places = [t + (first + tap) * dilation for tap in range(kernel)]
        window = torch.cat([read[i] if 0 <= i < len(xs) else torch.zeros_like(h) for i in places])
        convolved = linear.weight @ window + linear.bias  # type: ignore[operator]
        if isinstance(part, MultiplicativeUnit):
            g1, g2, g3, u = convolved.chunk(4)
            branch = g1.sigmoid() * (g2.sigmoid() * h + g3.sigmoid() * u.tanh()).tanh()
        else:
            branch = standardise(convolved, part.out_norm).clamp(min=0)
        outputs.append(x + out.weight @ branch + out.bias)
    return outputs


@BLOCKS
@torch.no_grad()
def test_logits_are_those_of_the_equations_token_by_token(block: str) -> None:
    model = build(block)
    source, target = SOURCE[1][:4].tolist(), TARGET[1].tolist()
    bound = ceil(1.2 * len(source)) + 1
    zero = torch.zeros(10).double()
    xs = [model.encoder.embed.table.weight[source[t]] if t < len(source) else zero for t in range(bound)]
    for layer in model.encoder.stack.layers:
        xs = unroll(layer, xs, causal=False)
    ys = [model.decoder.embed.table.weight[v] + (xs[t] if t < bound else zero) for t, v in enumerate(target)]
    for layer in model.decoder.stack.layers:
        ys = unroll(layer, ys, causal=True)
    head, norm = model.decoder.head, model.decoder.stack.final[0]
    expected = [head.table.weight @ standardise(y, norm).clamp(min=0) + head.bias for y in ys]
    assert_parity(model(SOURCE, TARGET)[1], torch.stack(expected))
