"""ResNet: published sizes, and use as a backbone."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context
from headwise.models.resnet import SIZES, ResNetConfig

COUNTS = {"18": 11_689_512, "34": 21_797_672, "50": 25_557_032, "101": 44_549_160}


@pytest.mark.parametrize(("size", "count"), COUNTS.items())
def test_published_sizes(size: str, count: int) -> None:
    assert count_parameters(headwise.build(f"resnet-{size}", device="meta")) == count


def test_a_backbone_reads_any_image_and_keeps_its_grid() -> None:
    config = ResNetConfig(width=4, depths=(1, 1, 1, 1), norm="frozen")
    stream = config.encoder()(torch.randn(1, 3, 160, 200), Context())
    assert stream.grid == (5, 7) and stream.x.shape == (1, 35, config.output_width)
    assert ResNetConfig().output_width == 2048


def test_frozen_norms_leave_only_convolutions_trainable() -> None:
    frozen, free = (ResNetConfig(**SIZES["tiny"], norm=norm).build(0, 3) for norm in ("frozen", "batch"))
    assert all(parameter.dim() == 4 for parameter in frozen.encoder.parameters())
    kept = {name for name in free.state_dict() if not name.endswith("num_batches_tracked")}
    assert frozen.state_dict().keys() == kept  # one's checkpoint is the other's
    frozen(torch.randn(2, 1, 32, 32)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in frozen.parameters())
