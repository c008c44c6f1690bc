"""Wirings, dropout and stochastic depth against their formulas."""

import pytest
import torch
from torch import Tensor

from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.residual import (
    DropPath,
    LayerScaleAdd,
    NoResidual,
    ParallelPreNorm,
    PostNorm,
    PreNorm,
    ResidualAdd,
    ResPostNorm,
    SandwichNorm,
)
from headwise.blocks.stream import Context, Stream


def test_wirings_are_their_formulas() -> None:
    x, parts = torch.randn(2, 3, 8), [FeedForward(8, 12), FeedForward(8, 12, "gelu")]
    post, pre = PostNorm(parts, lambda: LayerNorm(8)), PreNorm(parts, lambda: RMSNorm(8))
    one, two = parts
    inner = post.norms[0](x + one(x))
    torch.testing.assert_close(post(Stream.of(x), Context()).x, post.norms[1](inner + two(inner)))
    inner = x + one(pre.norms[0](x))
    torch.testing.assert_close(pre(Stream.of(x), Context()).x, inner + two(pre.norms[1](inner)))


def test_parallel_and_sandwich_wirings_are_their_formulas() -> None:
    x, parts = torch.randn(2, 3, 8), [FeedForward(8, 12), FeedForward(8, 12, "gelu")]
    parallel, sandwich = (wiring(parts, lambda: RMSNorm(8)) for wiring in (ParallelPreNorm, SandwichNorm))
    for parameter in (*parallel.norms.parameters(), *sandwich.norms.parameters()):
        torch.nn.init.uniform_(parameter, 0.5, 2.0)
    one, two = parts
    expected = x + one(parallel.norms[0](x)) + two(parallel.norms[1](x))
    torch.testing.assert_close(parallel(Stream.of(x), Context()).x, expected)
    inner = x + sandwich.norms[0].after(one(sandwich.norms[0].before(x)))
    expected = inner + sandwich.norms[1].after(two(sandwich.norms[1].before(inner)))
    torch.testing.assert_close(sandwich(Stream.of(x), Context()).x, expected)


def test_only_the_branch_is_dropped_and_only_in_training() -> None:
    add, x, branch = ResidualAdd(0.25), torch.full((1000,), 7.0), torch.ones(1000)
    dropped = add(x, branch) - x
    assert torch.allclose(dropped[dropped != 0], torch.tensor(1 / 0.75), atol=1e-5)
    assert 0.2 < (dropped == 0).float().mean() < 0.3
    assert torch.equal(add.eval()(x, branch), x + branch)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_stochastic_depth_drops_whole_rows_and_keeps_the_expectation(p: float) -> None:
    """A row of the branch is 0 with probability p and 1 / (1 - p) times itself otherwise, as in timm's drop_path."""
    rows = 20_000
    branch = torch.rand(rows, 3, 2) + 0.5
    factor = DropPath(p)(branch) / branch
    torch.testing.assert_close(factor, factor[:, :1, :1].expand_as(factor))  # one draw for all of a row
    kept = factor[:, 0, 0] > 0
    torch.testing.assert_close(factor[kept], torch.full_like(factor[kept], 1 / (1 - p)))
    deviation = (p * (1 - p) / rows) ** 0.5
    assert abs(float(kept.float().mean()) - (1 - p)) < 5 * deviation
    assert abs(float(factor.mean()) - 1) < 5 * deviation / (1 - p)


@pytest.mark.parametrize("make", [ResidualAdd, lambda **how: LayerScaleAdd(4, 0.3, **how)], ids=["add", "scaled"])
def test_residual_adds_drop_rows_of_the_branch_in_training_alone(make: type[ResidualAdd]) -> None:
    x, branch = torch.randn(2000, 3, 4), torch.randn(2000, 3, 4)
    add, plain = make(drop_path=0.25), make()
    expected = plain(x, branch) - x
    added = add(x, branch) - x
    dropped = (added == 0).all((1, 2))
    assert 0.2 < dropped.float().mean() < 0.3
    torch.testing.assert_close(added[~dropped], expected[~dropped] / 0.75, atol=1e-5, rtol=1e-4)
    assert torch.equal(add.eval()(x, branch), plain(x, branch))


def test_layer_scale_multiplies_the_branch_channel_by_channel() -> None:
    add = LayerScaleAdd(4, 0.5)
    add.gain.data = torch.tensor([0.0, 1.0, 2.0, -1.0])
    x, branch = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    torch.testing.assert_close(add(x, branch), x + torch.tensor([0.0, 1.0, 2.0, -1.0]) * branch)
    assert torch.equal(LayerScaleAdd(4, 0.5).gain, torch.full((4,), 0.5))


def test_other_wirings_are_their_formulas() -> None:
    x, parts = torch.randn(2, 3, 8), [FeedForward(8, 12), FeedForward(8, 12, "gelu")]
    one, two = parts
    behind = ResPostNorm(parts, lambda: LayerNorm(8))
    for norm in behind.norms:
        norm.weight.data.uniform_(0.5, 2)
    inner: Tensor = x + behind.norms[0](one(x))
    torch.testing.assert_close(behind(Stream.of(x), Context()).x, inner + behind.norms[1](two(inner)))
    torch.testing.assert_close(NoResidual(parts)(Stream.of(x), Context()).x, two(one(x)))
