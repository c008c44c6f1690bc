"""The same as the package `linformer` computes with the same weights."""

from __future__ import annotations

import pytest
import torch
from linformer import LinformerSelfAttention

from headwise.blocks.mixers.lowrank import LengthProjection, LowRankAttention
from headwise.testing import assert_parity


@pytest.mark.parametrize("length", [12, 7])
@pytest.mark.parametrize("shared", [False, True])
@torch.no_grad()
def test_outputs_are_those_of_the_package(length: int, shared: bool) -> None:
    torch.manual_seed(0)
    theirs = LinformerSelfAttention(16, seq_len=12, k=5, heads=4, share_kv=shared)
    ours = LowRankAttention(16, 4, keys=LengthProjection(5, 12), values=None if shared else LengthProjection(5, 12))
    values = theirs.to_k if shared else theirs.to_v  # it then shares the projections of keys and values, too
    ours.qkv.project.weight.copy_(torch.cat([theirs.to_q.weight, theirs.to_k.weight, values.weight]))
    ours.qkv.project.bias.zero_()
    ours.keys.weight.copy_(theirs.proj_k.mT)
    if not shared:
        ours.values.weight.copy_(theirs.proj_v.mT)
    ours.out.load_state_dict(theirs.to_out.state_dict())
    x = torch.randn(3, length, 16)
    assert_parity(ours(x), theirs(x))
