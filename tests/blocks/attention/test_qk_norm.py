"""QK norm: queries and keys are normalised before they are rotated and compared."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from headwise.blocks.attention.multihead import Attention, AttentionConfig
from headwise.blocks.norm import RMSNorm
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.rotary import RotaryConfig
from headwise.testing import assert_parity, check_part

WIDTH, HEADS, LENGTH = 24, 4, 7


def build_attention(key_value_heads: int = 0) -> Attention:
    build_ctx = BuildContext(width=WIDTH, heads=HEADS, hidden=32, causal=True, key_value_heads=key_value_heads)
    config = AttentionConfig(score_mods=({"kind": "qk_norm", "norm": {"kind": "rms", "eps": 1e-3}}, RotaryConfig()))
    part = config.build(build_ctx)
    assert isinstance(part, Attention)
    for parameter in part.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return part.double().eval()


@pytest.mark.parametrize("key_value_heads", [0, 2])
def test_attention_is_its_formula(key_value_heads: int) -> None:
    torch.manual_seed(0)
    part, x = build_attention(key_value_heads), torch.randn(2, LENGTH, WIDTH, dtype=torch.float64)
    norm, rotary = part.score_mods[0], part.score_mods[1]
    groups, size = key_value_heads or HEADS, WIDTH // HEADS
    q, k, v = (
        rows.unflatten(-1, (-1, size)).transpose(1, 2)
        for rows in part.qkv.project(x).split([WIDTH, groups * size, groups * size], -1)
    )
    q, k = (
        y * (y.square().mean(-1, keepdim=True) + 1e-3).rsqrt() * weight
        for y, weight in ((q, norm.query_norm.weight), (k, norm.key_norm.weight))
    )
    q, k = (rotary.rotate(y, torch.arange(LENGTH)) for y in (q, k))
    k, v = (y.repeat_interleave(HEADS // groups, 1) for y in (k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_parity(part(x), part.out(mixed.transpose(1, 2).flatten(2)))


def test_queries_and_keys_have_norms_of_their_own() -> None:
    norm = build_attention().score_mods[0]
    assert isinstance(norm.query_norm, RMSNorm) and norm.query_norm is not norm.key_norm


def test_it_declares_what_it_does() -> None:
    check_part(AttentionConfig(score_mods=({"kind": "qk_norm"},)))


def test_the_output_projection_may_be_without_a_bias() -> None:
    build_ctx = BuildContext(width=WIDTH, heads=HEADS, hidden=32)
    part = AttentionConfig(out_bias=False).build(build_ctx)
    assert part.out.bias is None and part.qkv.project.bias is not None
