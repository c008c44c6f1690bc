"""The gMLP block: its equations token by token, Toeplitz matrices, tiny attention, shorter texts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.blocks.mixers.spatial_gating import GatedMlp, GatedMlpConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Stream
from headwise.errors import UserError
from headwise.testing import assert_parity, perturb_parameters


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_block(**settings: Any) -> GatedMlp:
    torch.manual_seed(0)
    return perturb_parameters(GatedMlp(6, 8, 7, **settings), scale=0.5)


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def normalise(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + 1e-5).sqrt() * weight + bias


def compute_block(block: GatedMlp, x: Tensor) -> Tensor:
    """The pseudo-code of the paper (figure 1 and appendix), one token after the other: (T, C) -> (T, C)."""
    weights = dict(block.state_dict())
    hidden = [gelu(weights["inner.weight"] @ token + weights["inner.bias"]) for token in x]
    half = len(hidden[0]) // 2
    norm = (weights["gating.norm.weight"], weights["gating.norm.bias"])
    normed = [normalise(token[half:], *norm) for token in hidden]
    spatial = weights["gating.weight"]
    limit = len(weights["gating.bias"])
    out = []
    for t, token in enumerate(hidden):
        gate = weights["gating.bias"][t].expand(half).clone()
        for s, v in enumerate(normed):
            gate += (spatial[t, s] if spatial.dim() == 2 else spatial[t - s + limit - 1]) * v
        if "attention.qkv.weight" in weights:
            qkv = [weights["attention.qkv.weight"] @ u + weights["attention.qkv.bias"] for u in x]
            q, keys, values = qkv[t].chunk(3)[0], [u.chunk(3)[1] for u in qkv], [u.chunk(3)[2] for u in qkv]
            scores = torch.stack([q @ k for k in keys]) / math.sqrt(len(q))
            attended = sum(weight * v for weight, v in zip(scores.softmax(0), values, strict=True))
            gate += weights["attention.out.weight"] @ attended + weights["attention.out.bias"]
        out.append(weights["outer.weight"] @ (token[:half] * gate) + weights["outer.bias"])
    return torch.stack(out)


@pytest.mark.parametrize("settings", [{}, {"toeplitz": True}, {"attention_width": 4}])
@torch.no_grad()
def test_the_block_is_its_equations_token_by_token(settings: dict[str, Any]) -> None:
    block, x = build_block(**settings), draw(2, 7, 6)
    assert_parity(block(x), torch.stack([compute_block(block, row) for row in x]), 1e-12)


@pytest.mark.parametrize("settings", [{}, {"toeplitz": True, "attention_width": 4}])
@torch.no_grad()
def test_a_shorter_text_uses_the_weights_of_the_first_positions(settings: dict[str, Any]) -> None:
    block, x = build_block(**settings), draw(2, 7, 6)
    expected = compute_block(block, x[0, :4])
    assert_parity(block(x[:1, :4])[0], expected, 1e-12)
    keep = torch.arange(7) < torch.tensor([[4], [7]])
    assert_parity(block(Stream.of(x, keep))[0, :4], expected, 1e-12)


def test_a_toeplitz_matrix_depends_on_the_distance_alone() -> None:
    matrix = build_block(toeplitz=True).gating.get_matrix(5)
    for shift in range(-4, 5):
        assert len(set(torch.diagonal(matrix, shift).tolist())) == 1
    assert len(matrix.unique()) == 9


def test_a_new_block_passes_its_first_half_on() -> None:
    """Weights near zero and biases of one: the gate is open, and layers begin as feed-forward networks."""
    torch.manual_seed(0)
    block, x = GatedMlp(6, 8, 7), torch.randn(2, 7, 6)
    expected = block.outer(torch.nn.functional.gelu(block.inner(x))[..., :4])
    assert_parity(block(x), expected, 1e-4)


def test_what_cannot_be_built_or_read_is_refused() -> None:
    build_ctx = BuildContext(6, 2, 8)
    with pytest.raises(UserError, match="gmlp: would see the future in a decoder"):
        GatedMlpConfig().build(BuildContext(6, 2, 8, causal=True))
    with pytest.raises(UserError, match="hidden: 7 channels have no halves"):
        GatedMlpConfig(hidden=7).build(build_ctx)
    with pytest.raises(UserError, match="a sequence of 9 tokens does not fit spatial gating over 8"):
        GatedMlpConfig(max_length=8).build(build_ctx)(torch.zeros(1, 9, 6))
