"""Convolutions on the stream: residual blocks (He et al. 2016, "Deep Residual Learning for Image Recognition") and
convolutional stems.

As a backbone, for instance of a detector: `ResNetConfig(norm="frozen").encoder()` of models/resnet.py is an
`ImageEncoder`, whose `encoder(pixels, Context())` is a `Stream` of the last stage with its grid. Convolutions with
batch norm and frozen batch norm are in blocks/batchnorm.py.

Tokens of a grid, row by row, are a map in channels-last layout, so streams and maps convert without a copy; that layout
is also the faster one on CPUs.

Letters: B images, C channels, H rows of pixels, W columns of pixels, h x w grid, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headwise.blocks.batchnorm import ConvNorm, Norm
from headwise.blocks.feedforward import relu
from headwise.blocks.images import compute_patch_grid, count_class_tokens
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError

EXPANSION = 4  # width of a bottleneck's outputs / its inner width


def to_map(stream: Stream) -> Tensor:
    """The tokens of a grid as a map: (B, hw, D) -> (B, D, h, w)."""
    if class_tokens := count_class_tokens(stream):
        raise UserError(
            f"class_tokens: a convolution cannot read the {class_tokens} before the grid; set class_tokens = 0"
        )
    assert stream.grid is not None
    return stream.x.unflatten(1, stream.grid).permute(0, 3, 1, 2)


def to_stream(maps: Tensor) -> Stream:
    """A map as tokens on its grid: (B, D, h, w) -> (B, hw, D)."""
    rows, columns = maps.shape[2:]
    return replace(Stream.of(maps.permute(0, 2, 3, 1).flatten(1, 2)), grid=(rows, columns))


class ConvStem(nn.Module):
    """Convolutional stem instead of patch embedding: (B, C, H, W) -> (B, h, w, D). With `grid`, images of another grid
    are refused."""

    def __init__(self, channels: int, *layers: nn.Module, grid: tuple[int, int] | None = None):
        super().__init__()
        self.channels, self.grid = channels, grid
        self.layers = nn.Sequential(*layers)

    def forward(self, pixels: Tensor) -> Tensor:
        height, width = compute_patch_grid(pixels, self.channels, patch=1)
        maps: Tensor = self.layers(pixels.contiguous(memory_format=torch.channels_last))
        if self.grid not in (None, maps.shape[2:]):
            rows, columns = self.grid or ()
            raise UserError(
                f"image: the model reads a grid of {rows} x {columns}, and images of {height} x {width} have another; "
                "resize the images"
            )
        return maps.permute(0, 2, 3, 1)


class ResidualBlock(nn.Module):
    """Residual block: relu(shortcut(x) + body(x)) (He et al. 2016, equations 1 and 2), on a coarser grid with a
    stride."""

    def __init__(self, body: nn.Sequential, shortcut: nn.Module):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        maps = to_map(stream)
        return to_stream(relu(self.shortcut(maps) + self.body(maps)))


def build_basic_block(inputs: int, outputs: int, stride: int = 1, norm: Norm = nn.BatchNorm2d) -> ResidualBlock:
    """Basic block: two convolutions of 3 x 3."""
    body = nn.Sequential(
        ConvNorm(inputs, outputs, 3, stride, relu, norm),
        ConvNorm(outputs, outputs, 3, norm=norm),
    )
    return ResidualBlock(body, build_shortcut(inputs, outputs, stride, norm))


def build_bottleneck_block(inputs: int, outputs: int, stride: int = 1, norm: Norm = nn.BatchNorm2d) -> ResidualBlock:
    """Bottleneck block: 1 x 1 to a quarter of the channels, 3 x 3, 1 x 1 back.

    DISCREPANCY: the paper strides in the first convolution; here it is the second, as in every released ResNet since.
    """
    inner = outputs // EXPANSION
    body = nn.Sequential(
        ConvNorm(inputs, inner, 1, 1, relu, norm),
        ConvNorm(inner, inner, 3, stride, relu, norm),
        ConvNorm(inner, outputs, 1, norm=norm),
    )
    return ResidualBlock(body, build_shortcut(inputs, outputs, stride, norm))


def build_residual_stages(
    inputs: int, widths: Sequence[int], depths: Sequence[int], layer: Callable[[int, int, int], nn.Module]
) -> list[Stack]:
    """Stages of `layer(inputs, outputs, stride)`; every stage but the first halves the grid."""
    stages = []
    for number, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        layers = [layer(inputs, width, 2 if number else 1), *(layer(width, width, 1) for _ in range(depth - 1))]
        stages.append(Stack(layers))
        inputs = width
    return stages


def build_shortcut(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module:
    """The identity if shapes are equal, else a projection (option B of the paper)."""
    return nn.Identity() if inputs == outputs and stride == 1 else ConvNorm(inputs, outputs, 1, stride, norm=norm)
