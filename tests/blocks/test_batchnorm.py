"""Batch norm with linear maps: fused, frozen, and of a single vector."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.blocks.batchnorm import ConvNorm, FrozenNorm, LinearNorm, NormLinear, TokenNorm, fuse_batch_norms

TOKENS, MAPS = torch.randn(3, 5, 4, dtype=torch.float64), torch.randn(3, 4, 6, 5, dtype=torch.float64)


def randomise_statistics(model: nn.Module) -> nn.Module:
    """A model whose norms have running statistics and gains of their own."""
    for tensor in model.double().state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.5, 2.0)
    return model.eval()


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (ConvNorm(4, 7, stride=2, activation=torch.tanh), MAPS),
        (ConvNorm(4, 7, norm=FrozenNorm), MAPS),
        (LinearNorm(4, 7), TOKENS),
        (NormLinear(4, 7), TOKENS),
        (nn.Sequential(LinearNorm(4, 6), nn.Hardswish(), LinearNorm(6, 4), NormLinear(4, 2)), TOKENS),
    ],
    ids=["convolution", "frozen", "linear", "head", "several"],
)
def test_fusing_keeps_outputs_and_leaves_no_norm(model: nn.Module, x: Tensor) -> None:
    model = randomise_statistics(model)
    made = fuse_batch_norms(model)
    torch.testing.assert_close(made(x), model(x), rtol=1e-12, atol=1e-12)
    assert not any("running_mean" in name for name in made.state_dict())
    assert any("running_mean" in name for name in model.state_dict())  # the model itself stays as it is


def test_tokens_are_normalised_over_batch_and_length() -> None:
    norm = TokenNorm(4).double()
    flat = norm(TOKENS).flatten(0, 1)
    torch.testing.assert_close(flat.mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(flat.var(0, correction=0), torch.ones(4, dtype=torch.float64), atol=1e-3, rtol=0)


def test_a_single_vector_uses_the_running_statistics() -> None:
    """An epoch may end with a single image, which has no variance."""
    norm = randomise_statistics(TokenNorm(4))
    alone, before = TOKENS[:1, 0], norm.state_dict()["running_mean"].clone()
    expected = norm(alone)
    assert torch.equal(norm.train()(alone), expected)
    assert torch.equal(norm.state_dict()["running_mean"], before)


def test_a_frozen_norm_is_a_batch_norm_that_never_learns() -> None:
    norm, frozen = randomise_statistics(nn.BatchNorm2d(4)), FrozenNorm(4).double()
    frozen.load_state_dict({name: value for name, value in norm.state_dict().items() if name in frozen.state_dict()})
    before = {name: value.clone() for name, value in frozen.state_dict().items()}
    x = MAPS.clone().requires_grad_()
    y = frozen.train()(x)
    y.sum().backward()
    assert torch.equal(y, norm(MAPS)) and x.grad is not None and x.grad.abs().min() > 0
    assert not list(frozen.parameters())
    assert all(torch.equal(value, before[name]) for name, value in frozen.state_dict().items())
