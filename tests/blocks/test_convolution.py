"""Residual blocks and convolutional stems on the stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.batchnorm import ConvNorm
from headwise.blocks.convolution import (
    ConvStem,
    ResidualBlock,
    build_basic_block,
    build_bottleneck_block,
    build_residual_stages,
    to_map,
    to_stream,
)
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError

MAPS = torch.randn(2, 4, 5, 7, dtype=torch.float64)


def apply_conv(x: Tensor, layer: ConvNorm, stride: int = 1) -> Tensor:
    """Convolution and batch norm written out, in training."""
    y = F.conv2d(x, layer.conv.weight, stride=stride, padding=layer.conv.kernel_size[0] // 2)
    mean, variance = y.mean((0, 2, 3), keepdim=True), y.var((0, 2, 3), keepdim=True, correction=0)
    return (y - mean) / (variance + 1e-5).sqrt()


def test_streams_and_maps_convert_without_a_copy() -> None:
    stream = to_stream(MAPS)
    assert stream.grid == (5, 7) and torch.equal(stream.x[:, 9], MAPS[:, :, 1, 2])
    again = to_map(stream)
    assert torch.equal(again, MAPS) and again.data_ptr() == stream.x.data_ptr()
    assert to_stream(again).x.data_ptr() == stream.x.data_ptr()


@pytest.mark.parametrize("stride", [1, 2])
def test_a_basic_block_equals_its_equation(stride: int) -> None:
    layer = build_basic_block(4, 4 * stride, stride).double()
    one, two = layer.body
    side = apply_conv(MAPS, layer.shortcut, stride) if isinstance(layer.shortcut, ConvNorm) else MAPS
    assert isinstance(one, ConvNorm) and isinstance(two, ConvNorm)
    expected = F.relu(side + apply_conv(F.relu(apply_conv(MAPS, one, stride)), two))
    outputs = layer(to_stream(MAPS), Context())
    torch.testing.assert_close(to_map(outputs), expected)
    assert outputs.grid == ((5, 7) if stride == 1 else (3, 4)) and len(outputs.pos) == outputs.x.shape[1]


def test_a_bottleneck_has_a_quarter_of_the_width_and_the_stride_inside() -> None:
    layer = build_bottleneck_block(4, 16, 2)
    shapes = [tuple(conv.conv.weight.shape) for conv in layer.body if isinstance(conv, ConvNorm)]
    assert shapes == [(4, 4, 1, 1), (4, 4, 3, 3), (16, 4, 1, 1)]
    assert [conv.conv.stride[0] for conv in layer.body if isinstance(conv, ConvNorm)] == [1, 2, 1]


@pytest.mark.parametrize("layer", [build_basic_block, build_bottleneck_block])
def test_every_stage_but_the_first_halves_the_grid(layer: Callable[[int, int, int], ResidualBlock]) -> None:
    stages = build_residual_stages(4, (8, 16, 32), (1, 2, 1), layer)
    stream = to_stream(MAPS.float())
    grids = [(stream := stage(stream, Context())).grid for stage in stages]
    assert grids == [(5, 7), (3, 4), (2, 2)] and stream.x.shape == (2, 4, 32)


def test_a_convolution_refuses_class_tokens() -> None:
    stream = to_stream(MAPS.float())
    with_class_token = Stream.of(torch.cat((stream.x[:, :1], stream.x), dim=1))
    with pytest.raises(UserError, match=r"class_tokens: .* the 1 before the grid"):
        Stack([build_basic_block(4, 4)])(replace(with_class_token, grid=stream.grid), Context())
    with pytest.raises(UserError, match="are on no grid"):
        to_map(with_class_token)


def test_a_stem_refuses_other_grids_and_channels() -> None:
    stem = ConvStem(3, ConvNorm(3, 8, 3, 2), nn.MaxPool2d(3, 2, padding=1), grid=(4, 3))
    assert stem(torch.randn(2, 3, 16, 12)).shape == (2, 4, 3, 8)
    assert stem(torch.randn(2, 3, 15, 11)).shape == (2, 4, 3, 8)
    with pytest.raises(UserError, match="grid of 4 x 3, and images of 16 x 16 have another"):
        stem(torch.randn(2, 3, 16, 16))
    with pytest.raises(UserError, match=r"reads .*3, H, W"):
        stem(torch.randn(2, 1, 16, 12))
