"""Perceiver on images (Jaegle et al. 2021; Perceiver IO, Jaegle et al. 2022): every pixel is an input, with its
position in additional channels.

Letters: B images, C channels, h x w pixels, N latents, D width, F channels of a position.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.blocks.images import ImageEncoder, compute_patch_grid
from headwise.blocks.latents import LatentOutputs, with_memory
from headwise.blocks.stream import Context, Stream


class PixelStem(nn.Module):
    """[widen(pixel); project(position)] for each pixel: a stream on a grid."""

    def __init__(self, channels: int, positions: nn.Module, position_width: int, widen: nn.Module, project: nn.Module):
        super().__init__()
        self.channels, self.position_width = channels, position_width
        self.positions, self.widen, self.project = positions, widen, project

    def forward(self, pixels: Tensor) -> Stream:
        grid = compute_patch_grid(pixels, self.channels, 1)
        x = self.widen(pixels.flatten(2).mT)  # (B, C, h, w) -> (B, hw, C)
        pos = torch.arange(x.shape[1], device=x.device)
        positions = self.project(self.positions(x.new_zeros(1, len(pos), self.position_width), pos, grid))
        return Stream(torch.cat((x, positions.expand(x.shape[0], -1, -1)), dim=-1), pos, grid=grid)


class OutputQuery(nn.Module):
    """Output query: one learned query cross-attends to the latents, for classification (Perceiver IO, section 3.2)."""

    def __init__(self, width: int, layer: nn.Module):
        super().__init__()
        self.query = nn.Parameter(0.02 * torch.randn(1, width))
        self.layer = layer

    def forward(self, inputs: Stream, latents: Stream, ctx: Context) -> Stream:
        query = self.query.expand(len(latents.x), -1, -1)  # (1, D) -> (B, 1, D)
        return self.layer(Stream.of(query), with_memory(ctx, latents).at("outputs"))


class LatentImageEncoder(ImageEncoder):
    """Perceiver encoder of images: pixels -> latents -> `outputs`."""

    def __init__(
        self, stem: PixelStem, stack: nn.Module, latents: int, width: int, outputs: LatentOutputs | OutputQuery
    ):
        super().__init__(stem, stack)
        self.latents = nn.Parameter(0.02 * torch.randn(latents, width))
        self.outputs = outputs

    def forward(self, pixels: Tensor, ctx: Context) -> Stream:
        inputs = self.stem(pixels)
        return self.outputs(inputs, self.perceive(inputs, ctx), ctx)

    def perceive(self, inputs: Stream, ctx: Context) -> Stream:
        """The latents after cross-attention to the inputs."""
        latents = Stream.of(self.latents.repeat(len(inputs.x), 1, 1))  # (N, D) -> (B, N, D)
        return self.stack(latents, with_memory(ctx, inputs).at("encoder"))
