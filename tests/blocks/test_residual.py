"""Wirings written out (C8, C10)."""

import torch

from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.residual import Add, Post, Pre
from headwise.blocks.stream import Context, Stream


def test_wirings_are_their_formulas() -> None:
    x, parts = torch.randn(2, 3, 8), [FeedForward(8, 12), FeedForward(8, 12, "gelu")]
    post, pre = Post(parts, lambda: LayerNorm(8)), Pre(parts, lambda: RMSNorm(8))
    one, two = parts
    inner = post.norms[0](x + one(x))
    torch.testing.assert_close(post(Stream.of(x), Context()).x, post.norms[1](inner + two(inner)))
    inner = x + one(pre.norms[0](x))
    torch.testing.assert_close(pre(Stream.of(x), Context()).x, inner + two(pre.norms[1](inner)))


def test_only_the_branch_is_dropped_and_only_in_training() -> None:
    add, x, branch = Add(0.25), torch.full((1000,), 7.0), torch.ones(1000)
    dropped = add(x, branch) - x
    assert torch.allclose(dropped[dropped != 0], torch.tensor(1 / 0.75), atol=1e-5)
    assert 0.2 < (dropped == 0).float().mean() < 0.3
    assert torch.equal(add.eval()(x, branch), x + branch)
