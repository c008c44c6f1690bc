"""Admin on torch's own layers: a profile and a pass written with nn.MultiheadAttention and numpy, as published."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from headwise.blocks.admin import Admin, profile
from headwise.blocks.attention.multihead import Attention
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Stream
from headwise.testing import assert_parity

WIDTH, HEADS, HIDDEN, DEPTH = 16, 4, 24, 6


def published(layers: list[nn.TransformerEncoderLayer], x: Tensor) -> tuple[list[float], Tensor]:
    """Liu et al. 2020: each ω as the pass comes by, and the output with them."""
    omegas, omega = [], 1.0
    for layer in layers:
        for branch, norm in ((lambda x, a=layer.self_attn: a(x, x, x)[0], layer.norm1), (mlp(layer), layer.norm2)):
            f = branch(x)
            omegas.append(omega)
            total = np.var((omega * x).numpy(), dtype=np.float64) + np.var(f.numpy(), dtype=np.float64)
            x, omega = norm(omega * x + f), float(np.sqrt(total))
    return omegas, x


def mlp(layer: nn.TransformerEncoderLayer) -> Callable[[Tensor], Tensor]:
    return lambda x: layer.linear2(torch.relu(layer.linear1(x)))


@torch.no_grad()
def ours(theirs: nn.TransformerEncoderLayer) -> Admin:
    attention, feedforward = Attention(WIDTH, HEADS), FeedForward(WIDTH, HIDDEN)
    pairs = (
        (attention.qkv.project.weight, theirs.self_attn.in_proj_weight),
        (attention.qkv.project.bias, theirs.self_attn.in_proj_bias),
        (attention.out.weight, theirs.self_attn.out_proj.weight),
        (attention.out.bias, theirs.self_attn.out_proj.bias),
        (feedforward.inner.weight, theirs.linear1.weight),
        (feedforward.inner.bias, theirs.linear1.bias),
        (feedforward.outer.weight, theirs.linear2.weight),
        (feedforward.outer.bias, theirs.linear2.bias),
    )
    for own, other in pairs:
        own.copy_(other)
    return Admin([attention, feedforward], lambda: LayerNorm(WIDTH))


@torch.no_grad()
def test_scales_and_outputs() -> None:
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, 0.0, batch_first=True).eval() for _ in range(DEPTH)]
    x = 2 * torch.randn(3, 7, WIDTH)
    stack = Stack([ours(layer) for layer in layers])
    profile(stack, lambda: stack(Stream.of(x), Context()))
    omegas, expected = published(layers, x)
    found = torch.stack([scale for layer in stack.layers for scale in layer.scales])
    assert_parity(found, torch.tensor(omegas)[:, None].expand(-1, WIDTH))
    assert_parity(stack(Stream.of(x), Context()).x, expected)
    assert omegas[-1] > 2
