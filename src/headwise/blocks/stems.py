"""Other patch embeddings: by convolutions, and between the layers of a stack (VOLO, Yuan et al. 2021, section 3.3); on
a fixed grid (MLP-Mixer, Tolstikhin et al. 2021).

Letters: B images, C channels, H x W pixels, P side of a patch, h x w grid, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from headwise.blocks.batchnorm import ConvNorm
from headwise.blocks.feedforward import relu
from headwise.blocks.images import PatchEmbedding, compute_patch_grid, count_class_tokens
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError


class ConvPatchEmbedding(nn.Module):
    """Convolutional patch embedding: three convolutions with batch norm, the first of stride 2, then patches of P/2 x
    P/2: (B, C, H, W) -> (B, h, w, D). Image sides must be multiples of `multiple`, 0: of P."""

    def __init__(self, channels: int, width: int, patch: int, hidden: int = 64, multiple: int = 0):
        super().__init__()
        if patch % 2:
            raise UserError(
                f"patch: a convolutional stem of stride 2 needs an even patch size, not {patch}; choose an even one"
            )
        self.channels, self.multiple = channels, multiple or patch
        self.convolve = nn.Sequential(
            ConvNorm(channels, hidden, 7, 2, relu),
            ConvNorm(hidden, hidden, activation=relu),
            ConvNorm(hidden, hidden, activation=relu),
        )
        self.patches = PatchEmbedding(hidden, width, patch // 2)

    def forward(self, pixels: Tensor) -> Tensor:
        compute_patch_grid(pixels, self.channels, self.multiple)  # checks the sides, for later stages as well
        return self.patches(self.convolve(pixels))


class FixedGridPatchEmbedding(PatchEmbedding):
    """Patch embedding on a fixed grid, for mixers whose weights depend on the position."""

    def __init__(self, channels: int, width: int, patch: int, grid: tuple[int, int]):
        super().__init__(channels, width, patch)
        self.grid = grid

    def forward(self, pixels: Tensor) -> Tensor:
        if compute_patch_grid(pixels, self.channels, self.patch) != self.grid:
            rows, columns = (side * self.patch for side in self.grid)
            raise UserError(f"image: the model reads {rows} x {columns} pixels only; resize the images")
        return super().forward(pixels)


class Downsample(nn.Module):
    """Downsampling between two stages: a stem whose image is the stream, for fewer and wider tokens."""

    def __init__(self, stem: nn.Module):
        super().__init__()
        self.stem = stem

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        if count_class_tokens(stream) or stream.grid is None:
            raise UserError("class_tokens: tokens before the patches cannot be merged with them; use class_tokens = 0")
        return self.stem(stream.x.mT.unflatten(2, stream.grid))  # (B, hw, D) -> (B, D, h, w)
