"""Relative positions against Hugging Face's T5, Llama and Bloom, and against loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from headwise.blocks.attention.kernels import plain
from headwise.blocks.attention.multihead import Attention
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout, Causal
from headwise.blocks.positions.alibi import Alibi
from headwise.blocks.positions.relative import ShawRelative, T5Bias, bucket_distances
from headwise.blocks.positions.rotary import Rotary
from headwise.blocks.stream import Stream


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("both_ways", [True, False], ids=["encoder", "decoder"])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (64, 512)])
def test_buckets_are_those_of_t5(both_ways: bool, buckets: int, max_distance: int) -> None:
    distance = torch.arange(-1000, 1001)
    theirs = T5Attention._relative_position_bucket(distance, both_ways, buckets, max_distance)
    assert torch.equal(bucket_distances(distance, buckets, max_distance, both_ways), theirs)


@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
def test_attention_with_a_bucket_bias_is_that_of_t5(decoder: bool) -> None:
    """T5 neither scales the scores nor has biases in its projections."""
    config = T5Config(d_model=16, d_kv=4, num_heads=4, is_decoder=decoder, dropout_rate=0.0)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    mod = T5Bias(4, both_ways=not decoder)
    score_mods = [mod, Causal()] if decoder else [mod]
    ours = Attention(16, 4, score_mods=score_mods, bias=False, scale=1.0).eval()
    with torch.no_grad():
        ours.qkv.project.weight.copy_(torch.cat((theirs.q.weight, theirs.k.weight, theirs.v.weight)))
        ours.out.weight.copy_(theirs.o.weight)
        mod.table.weight.copy_(theirs.relative_attention_bias.weight)
    x = torch.randn(2, 9, 16)
    mask = torch.full((9, 9), torch.finfo().min).triu(1)[None, None] if decoder else None
    close(ours(x), theirs(x, mask=mask)[0])
    layout = AttentionLayout(9, 9, torch.arange(9), torch.arange(9))
    close(mod.bias(layout), theirs.compute_bias(9, 9)[0])


def test_rotary_is_that_of_llama() -> None:
    config = LlamaConfig(hidden_size=32, num_attention_heads=4, head_dim=8)
    q, k, pos = torch.randn(2, 4, 50, 8), torch.randn(2, 4, 50, 8), torch.arange(50)
    cos, sin = LlamaRotaryEmbedding(config)(q, pos[None])
    rotary = Rotary(8)
    for ours, theirs in zip(
        (rotary.rotate(q, pos), rotary.rotate(k, pos)), apply_rotary_pos_emb(q, k, cos, sin), strict=True
    ):
        close(ours, theirs)


def test_rotary_takes_positions_of_each_row() -> None:
    rotary, x = Rotary(8), torch.randn(2, 3, 5, 8)
    pos = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    rows = [rotary.rotate(x[row : row + 1], pos[row]) for row in range(2)]
    close(rotary.rotate(x, pos), torch.cat(rows))


def test_alibi_is_that_of_bloom() -> None:
    """Bloom adds slope * j, which differs from -slope * (i - j) by a constant in each row of a causal softmax."""
    for heads in (4, 6, 8, 12):
        pos = torch.arange(10)
        ours = Alibi(heads).bias(AttentionLayout(10, 10, pos, pos))
        theirs = build_alibi_tensor(torch.ones(1, 10), heads, torch.float32).view(heads, 1, 10)
        visible = torch.ones(10, 10, dtype=torch.bool).tril()
        close(
            ours.masked_fill(~visible, -torch.inf).softmax(-1),
            theirs.expand(heads, 10, 10).masked_fill(~visible, -torch.inf).softmax(-1),
        )
        power = 2 ** math.floor(math.log2(heads))
        close(ours[0, :, 0], -(2 ** (-8 / power)) * pos)


def shaw_by_loops(inputs: AttentionInputs, mod: ShawRelative) -> Tensor:
    """Equations 3 and 4 of Shaw et al. (2018), one pair of places at a time."""
    rows, heads, length, width = inputs.q.shape
    out = torch.zeros_like(inputs.q)
    for b in range(rows):
        for h in range(heads):
            for i in range(length):
                clipped = [
                    max(-mod.max_distance, min(j - i, mod.max_distance)) + mod.max_distance for j in range(length)
                ]
                keys = torch.stack([inputs.k[b, h, j] + mod.keys[clipped[j]] for j in range(length)])
                weights = (keys @ inputs.q[b, h, i] / math.sqrt(width)).softmax(0)
                values = torch.stack([inputs.v[b, h, j] + mod.values[clipped[j]] for j in range(length)])
                out[b, h, i] = weights @ values
    return out


def test_shaw_is_its_formula() -> None:
    mod = ShawRelative(4, max_distance=2).double()
    q, k, v = (torch.randn(2, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    pos = torch.arange(6)
    inputs = AttentionInputs(q, k, v, 0.5, AttentionLayout(6, 6, pos, pos), (mod,))
    close(plain(inputs), shaw_by_loops(inputs, mod), 1e-12)


@pytest.mark.parametrize("make", [lambda: Rotary(4), lambda: Alibi(2), lambda: T5Bias(2), lambda: ShawRelative(4, 3)])
def test_only_the_distance_counts(make: object) -> None:
    attention = Attention(8, 2, score_mods=[make()]).eval().double()
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    here, there = attention(Stream.of(x)), attention(Stream.of(x, start=1000))
    close(there, here, 1e-4)  # rotary's rates are float32
    mirrored = attention(x.flip(1)).flip(1)
    assert isinstance(attention.score_mods[0], Alibi) == torch.allclose(
        mirrored, here
    )  # only ALiBi's distance has no sign
