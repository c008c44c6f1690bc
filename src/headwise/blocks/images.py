"""Images as tokens: patch embedding and image encoders (Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words").

Class and distillation tokens are before the patches, so a stream of T tokens on a grid of h x w has T - h * w of them.

Letters: B images, C channels, H rows and W columns of pixels, P side of a patch, h x w grid of patches, T tokens,
D width, L labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError


class PatchEmbedding(nn.Module):
    """Patch embedding: a linear projection of patches of P x P pixels, equal to a convolution with stride P
    (Dosovitskiy et al. 2021, equation 1). (B, C, H, W) -> (B, h, w, D). With `pad`, zeros below and to the right
    complete the last patches; otherwise the sides must be multiples of P."""

    def __init__(self, channels: int, width: int, patch: int, bias: bool = True, pad: bool = False):
        super().__init__()
        self.channels, self.patch, self.pad = channels, patch, pad
        self.project = nn.Linear(channels * patch * patch, width, bias)

    def forward(self, pixels: Tensor) -> Tensor:
        if self.pad:
            pixels = F.pad(pixels, (0, -pixels.shape[-1] % self.patch, 0, -pixels.shape[-2] % self.patch))
        rows, columns = compute_patch_grid(pixels, self.channels, self.patch)
        shape = (pixels.shape[0], self.channels, rows, self.patch, columns, self.patch)
        cells = pixels.reshape(shape).permute(0, 2, 4, 1, 3, 5)  # (B, C, h, P, w, P) -> (B, h, w, C, P, P)
        return self.project(cells.flatten(3))  # (B, h, w, CPP) -> (B, h, w, D)


def compute_patch_grid(pixels: Tensor, channels: int, patch: int) -> tuple[int, int]:
    """The numbers of rows and columns of patches; refuses images of other channels or sides."""
    if pixels.dim() != 4 or pixels.shape[1] != channels:
        shape = " x ".join(map(str, pixels.shape))
        raise UserError(f"images: the model reads (B, {channels}, H, W), not {shape}; change the shape")
    height, width = pixels.shape[2:]
    if height % patch or width % patch:
        raise UserError(
            f"image: {height} x {width} pixels cannot be cut into patches of {patch} x {patch}; resize the images"
        )
    return height // patch, width // patch


class ImageStem(nn.Module):
    """Image stem: patches, class tokens and register tokens before them, positions, dropout; a stream on a grid.

    Register tokens (Darcet et al. 2024, "Vision Transformers Need Registers") are between the class tokens and the
    patches; they have no positions and no head.
    """

    def __init__(
        self,
        patches: nn.Module,
        width: int,
        class_tokens: int = 0,
        positions: nn.Module | None = None,
        dropout: float = 0.0,
        norm: nn.Module | None = None,
        registers: int = 0,
    ):
        super().__init__()
        self.patches = patches
        self.norm = norm if norm is not None else nn.Identity()
        self.class_tokens = nn.Parameter(torch.zeros(class_tokens, width)) if class_tokens else None
        self.registers = nn.Parameter(torch.zeros(registers, width)) if registers else None
        self.positions = positions
        self.drop = make_dropout(dropout)

    def forward(self, pixels: Tensor) -> Stream:
        cells = self.norm(self.patches(pixels))
        grid = (cells.shape[1], cells.shape[2])
        x = cells.flatten(1, 2)  # (B, h, w, D) -> (B, hw, D)
        if self.class_tokens is not None:
            x = torch.cat((self.class_tokens.expand(x.shape[0], -1, -1), x), dim=1)  # (B, class_tokens + hw, D)
        pos = torch.arange(x.shape[1], device=x.device)
        if self.positions is not None:
            x = self.positions(x, pos, grid)
        if self.registers is not None:
            class_tokens = x.shape[1] - grid[0] * grid[1]
            registers = self.registers.expand(x.shape[0], -1, -1)
            x = torch.cat((x[:, :class_tokens], registers, x[:, class_tokens:]), dim=1)
            pos = torch.arange(x.shape[1], device=x.device)
        return Stream(self.drop(x), pos, grid=grid)


def count_class_tokens(stream: Stream) -> int:
    """Number of tokens of a stream before its grid."""
    if stream.grid is None:
        raise UserError("image: these tokens are on no grid; use a part that needs none")
    rows, columns = stream.grid
    return stream.x.shape[1] - rows * columns


class ImageEncoder(nn.Module):
    """Image encoder: pixels -> a stream, which a decoder can attend to."""

    def __init__(self, stem: nn.Module, stack: nn.Module):
        super().__init__()
        self.stem, self.stack = stem, stack

    def forward(self, pixels: Tensor, ctx: Context) -> Stream:
        return self.stack(self.stem(pixels), ctx.at("encoder", ctx.outputs_needed))

    def read(self, pixels: Tensor) -> dict[str, Stream]:
        """The memories of a decoder, by name."""
        return {"encoder": self(pixels, Context())}


class TakeClassToken(nn.Module):
    """Pooling of an image by one of its class tokens."""

    def __init__(self, number: int = 0):
        super().__init__()
        self.number, self.tokens_read = number, number + 1

    def forward(self, stream: Stream) -> Tensor:
        return stream.x[:, self.number]

    def extra_repr(self) -> str:
        return str(self.number)


def mean_patches(stream: Stream) -> Tensor:
    """Mean of the patches without the class tokens: (B, T, D) -> (B, D)."""
    return stream.x[:, count_class_tokens(stream) :].mean(1)


class MeanPatches(nn.Module):
    """Pooling of an image by the mean of its patches, without the class tokens."""

    def forward(self, stream: Stream) -> Tensor:
        return mean_patches(stream)


class ClassTokenAndMean(nn.Module):
    """Pooling of an image by the first class token beside the mean of the patches (Oquab et al. 2024, "DINOv2"):
    (B, T, D) -> (B, 2D)."""

    def forward(self, stream: Stream) -> Tensor:
        return torch.cat((stream.x[:, 0], mean_patches(stream)), dim=-1)
