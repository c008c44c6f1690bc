"""The convolutional baseline, with and without non-local blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import headwise
from headwise.blocks.batchnorm import fuse_batch_norms
from headwise.blocks.mixers.nonlocal_block import NonLocal
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context


def build_tiny(**settings: Any) -> Any:
    return headwise.build("cnn-tiny", outputs=3, **settings)


def test_a_few_hundred_thousand_parameters() -> None:
    assert 200_000 < count_parameters(headwise.build("cnn", device="meta")) < 800_000


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (5, 9)])
def test_images_of_any_size(size: tuple[int, int]) -> None:
    stream = build_tiny().encoder(torch.randn(2, 1, *size), Context())
    assert stream.grid == tuple(-(-side // 4) for side in size) and stream.x.shape[-1] == 32


def test_a_new_layer_is_the_identity() -> None:
    """So depth costs nothing at the start: a network three times as deep says the same."""
    one, three = build_tiny().eval(), build_tiny(depths=(3, 3, 3)).eval()
    three.load_state_dict(one.state_dict(), strict=False)
    pixels = torch.randn(2, 1, 16, 16)
    assert torch.equal(three(pixels), one(pixels))


@pytest.mark.parametrize("form", ["embedded", "gaussian", "dot", "concat"])
def test_non_local_blocks_added_to_a_trained_network_change_nothing(form: str) -> None:
    torch.manual_seed(0)  # of others, all scores of the form with a ReLU may be zero
    plain, wider = (
        build_tiny().eval(),
        build_tiny(mixers=[{"kind": "nonlocal", "form": form}], mixer_stages=[2, 3]).eval(),
    )
    wider.load_state_dict(plain.state_dict(), strict=False)
    pixels = torch.randn(2, 1, 16, 16)
    assert torch.equal(wider(pixels), plain(pixels))
    blocks: list[Any] = [module for module in wider.modules() if isinstance(module, NonLocal)]
    assert len(blocks) == 2
    wider(pixels).square().sum().backward()
    assert all(block.out.norm.weight.grad.abs().sum() > 0 for block in blocks)


def test_other_mixers_can_be_added() -> None:
    model = build_tiny(mixers=["attention", "fourier"], mixer_stages=[3])
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 3)
    assert len(model.encoder.stack.layers[2].layers) == 3


def test_fused_for_inference() -> None:
    model, pixels = build_tiny(mixers=["nonlocal"]).double(), torch.randn(4, 1, 16, 16, dtype=torch.float64)
    model(pixels)
    made = fuse_batch_norms(model)
    assert not [module for module in made.modules() if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d)]
    torch.testing.assert_close(made(pixels), model.eval()(pixels), rtol=1e-9, atol=1e-9)
