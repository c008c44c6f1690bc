"""Convolutional encoders of frames of a game.

Letters: B frames, H rows, W columns, C width.
"""

from __future__ import annotations

from torch import Tensor, nn

from headwise.errors import UserError

LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel and stride of each convolution


class FrameEncoder(nn.Module):
    """The convolutional network of DQN (Mnih et al. 2015): three convolutions with ReLU, and a linear layer on what is
    left of the frame."""

    def __init__(self, frame: tuple[int, int, int], width: int):
        super().__init__()
        channels, *sides = frame
        layers: list[nn.Module] = []
        for outputs, kernel, stride in LAYERS:
            layers += [nn.Conv2d(channels, outputs, kernel, stride), nn.ReLU()]
            channels, sides = outputs, [(side - kernel) // stride + 1 for side in sides]
            if min(sides) < 1:
                raise UserError(f"observation: frames of {frame[1]} x {frame[2]} pixels are too small; give 36 or more")
        self.convolutions = nn.Sequential(*layers)
        self.out = nn.Linear(channels * sides[0] * sides[1], width)

    def forward(self, frames: Tensor) -> Tensor:
        """(..., channels, H, W) -> (..., C)."""
        flat = frames.flatten(0, -4)  # (..., channels, H, W) -> (B, channels, H, W)
        x: Tensor = self.out(self.convolutions(flat).flatten(1))
        return x.unflatten(0, frames.shape[:-3])
