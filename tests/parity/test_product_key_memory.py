"""The same as the package `product_key_memory` computes with the same weights, where queries have a layer norm."""

from __future__ import annotations

import pytest
import torch
from product_key_memory import ProductKeyMemory as TheirMemory

from headwise.blocks.product_keys import ProductKeyMemory
from headwise.testing import assert_parity


@pytest.mark.parametrize("nearest", [1, 4, 9])
@torch.no_grad()
def test_outputs_are_those_of_the_package(nearest: int) -> None:
    torch.manual_seed(0)
    theirs = TheirMemory(12, heads=3, num_keys=10, topk=nearest, dim_head=5).eval()
    ours = ProductKeyMemory(12, 10, 3, nearest, key_width=10, query_norm="layer", query_bias=False).eval()
    # its queries are (halves, heads, half width) and its keys (heads, keys, halves, half width)
    ours.query.weight.copy_(theirs.to_queries.weight.view(2, 3, 5, 12).transpose(0, 1).flatten(0, 2))
    ours.keys.copy_(theirs.keys.transpose(1, 2))
    for norm in (theirs.norm, ours.norm):
        norm.weight.copy_(torch.linspace(0.5, 1.5, 5))
        norm.bias.copy_(torch.linspace(-0.2, 0.3, 5))
    ours.values.weight.copy_(theirs.values.weight)
    x = torch.randn(2, 7, 12)
    assert_parity(ours(x), theirs(x))
