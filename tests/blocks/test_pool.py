"""Pooling over real tokens, against definitions token by token."""

import pytest
import torch

from headwise.blocks.pool import POOLS, Pool
from headwise.blocks.stream import Stream

KEEP = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]) > 0
BY_HAND = {
    "mean": lambda tokens: tokens.sum(0) / len(tokens),
    "max": lambda tokens: tokens.max(0).values,
    "first": lambda tokens: tokens[0],
    "last": lambda tokens: tokens[-1],
}


@pytest.mark.parametrize("kind", POOLS)
def test_only_real_tokens_count(kind: str) -> None:
    x = -1 - torch.rand(3, 4, 5)  # below 0, which padding must not be taken for
    x[~KEEP] = 7.0
    pooled = Pool(kind)(Stream.of(x, KEEP))
    for row in range(3):
        torch.testing.assert_close(pooled[row], BY_HAND[kind](x[row, KEEP[row]]))
    torch.testing.assert_close(Pool(kind)(Stream.of(x[:1])), pooled[:1])


@pytest.mark.parametrize("kind", ["mean", "max"])
def test_a_text_without_tokens_gives_zeros(kind: str) -> None:
    pooled = Pool(kind)(Stream.of(torch.ones(1, 3, 2), torch.zeros(1, 3, dtype=torch.bool)))
    assert torch.equal(pooled, torch.zeros(1, 2))
