"""LeViT attention: bias by offset, wide values, and subsampling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwise
from headwise.blocks.attention.score_mods import AttentionLayout
from headwise.blocks.convolution import to_stream
from headwise.blocks.mixers.levit_attention import (
    BatchNormCrossProjection,
    BatchNormSelfProjection,
    LeViTAttention,
    OffsetBias,
    SubsampleAttention,
    subsample,
)
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError

GRID, HEADS, D, V, WIDTH = (3, 4), 2, 3, 6, 5
PLACES = [(y, x) for y in range(3) for x in range(4)]


def make_images() -> Stream:
    return to_stream(torch.randn(2, WIDTH, *GRID, dtype=torch.float64))


def perturb(module: Any) -> Any:
    for tensor in module.double().state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.3, 1.3)
    return module.eval()


def compute_by_definition(
    q: Tensor, k: Tensor, v: Tensor, scores: Tensor, queries: list[tuple[int, int]], out: Any
) -> Tensor:
    """softmax(q k / sqrt(D) + score of |dy|, |dx|) v of heads (B, T, H, .), hard swish, the last product."""
    mixed = []
    for head in range(HEADS):
        bias = torch.stack(
            [torch.stack([scores[head, abs(y - b) * 4 + abs(x - a)] for b, a in PLACES]) for y, x in queries]
        )
        weights = (torch.einsum("bqd,bkd->bqk", q[:, :, head], k[:, :, head]) * D**-0.5 + bias).softmax(-1)
        mixed.append(weights @ v[:, :, head])
    return out[1](F.hardswish(torch.cat(mixed, dim=-1)))


def test_the_bias_of_an_offset_is_the_same_in_all_directions() -> None:
    mod = OffsetBias(HEADS, GRID)
    nn.init.normal_(mod.scores)
    everywhere = torch.arange(12)
    bias = mod.bias(AttentionLayout(12, 12, everywhere, everywhere))
    assert torch.equal(bias, bias.transpose(1, 2))
    assert torch.equal(bias[:, 0, 5], bias[:, 2, 7]) and torch.equal(bias[:, 1, 4], bias[:, 0, 5])
    assert bias.unique().numel() == mod.scores.numel()


def test_attention_equals_its_definition() -> None:
    part = perturb(LeViTAttention(BatchNormSelfProjection(WIDTH, HEADS, D, V), WIDTH, [OffsetBias(HEADS, GRID)]))
    stream = make_images()
    q, k, v = part.qkv.project(stream.x).unflatten(-1, (HEADS, 2 * D + V)).split((D, D, V), -1)
    expected = compute_by_definition(q, k, v, part.score_mods[0].scores, PLACES, part.out)
    torch.testing.assert_close(part(stream), expected, rtol=1e-9, atol=1e-9)


def test_subsampling_attention_has_queries_at_every_other_token() -> None:
    attention = LeViTAttention(BatchNormCrossProjection(WIDTH, HEADS, D, V), 7, [OffsetBias(HEADS, GRID)], gain=1.0)
    layer, stream = perturb(SubsampleAttention(attention)), make_images()
    queries = [(y, x) for y in (0, 2) for x in (0, 2)]
    qkv = layer.attention.qkv
    q = qkv.query(stream.x[:, [4 * y + x for y, x in queries]]).unflatten(-1, (HEADS, D))
    k, v = qkv.project(stream.x).unflatten(-1, (HEADS, D + V)).split((D, V), -1)
    outputs = layer(stream, Context())
    expected = compute_by_definition(q, k, v, layer.attention.score_mods[0].scores, queries, layer.attention.out)
    torch.testing.assert_close(outputs.x, expected, rtol=1e-9, atol=1e-9)
    assert outputs.grid == (2, 2) and outputs.pos.tolist() == [0, 1, 2, 3] and outputs.x.shape[-1] == 7


def test_subsampled_tokens_keep_their_positions() -> None:
    queries, grid = subsample(to_stream(torch.arange(15.0).view(1, 1, 3, 5)))
    assert grid == (2, 3) and queries.pos.tolist() == queries.x.flatten().tolist() == [0, 2, 4, 10, 12, 14]
    marked = Stream(torch.zeros(1, 13, 1), torch.arange(13), grid=(3, 4))
    with pytest.raises(UserError, match="set class_tokens = 0"):
        subsample(marked)


def test_it_works_in_a_vision_transformer() -> None:
    settings: dict[str, Any] = {"mixer": {"kind": "levit", "value_expand": 3}, "feedforward": {"kind": "levit_mlp"}}
    model: Any = headwise.build("vit-tiny", outputs=3, **settings)
    model(torch.randn(2, 1, 16, 16)).sum().backward()
    layer = model.encoder.stack.layers[0]
    assert layer.parts[0].out[1].linear.in_features == 3 * 32
    assert layer.parts[0].out[1].norm.weight.grad.abs().sum() > 0
