"""Convolutional encoders of frames of a game.

Letters: B frames, H rows, W columns, C width.
"""

from __future__ import annotations

from torch import Tensor, nn

from headwise.errors import UserError

Layers = tuple[tuple[int, int, int], ...]  # channels, kernel and stride of each convolution
LAYERS: Layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # of DQN


def make_convolutions(frame: tuple[int, int, int], layers: Layers) -> tuple[nn.Sequential, int]:
    """Convolutions with ReLU, and how many numbers they leave of a frame."""
    channels, *sides = frame
    modules: list[nn.Module] = []
    for outputs, kernel, stride in layers:
        modules += [nn.Conv2d(channels, outputs, kernel, stride), nn.ReLU()]
        channels, sides = outputs, [(side - kernel) // stride + 1 for side in sides]
        if min(sides) < 1:
            least = count_least_side(layers)
            raise UserError(
                f"observation: frames of {frame[1]} x {frame[2]} pixels are too small; give {least} or more"
            )
    return nn.Sequential(*modules), channels * sides[0] * sides[1]


def count_least_side(layers: Layers) -> int:
    """The side of the smallest frame that these convolutions can read.

    >>> count_least_side(LAYERS)
    36
    """
    side = 1
    for _, kernel, stride in reversed(layers):
        side = (side - 1) * stride + kernel
    return side


class FrameEncoder(nn.Module):
    """The convolutional network of DQN (Mnih et al. 2015): three convolutions with ReLU, and a linear layer on what is
    left of the frame."""

    def __init__(self, frame: tuple[int, int, int], width: int):
        super().__init__()
        self.convolutions, size = make_convolutions(frame, LAYERS)
        self.out = nn.Linear(size, width)

    def forward(self, frames: Tensor) -> Tensor:
        """(..., channels, H, W) -> (..., C)."""
        flat = frames.flatten(0, -4)  # (..., channels, H, W) -> (B, channels, H, W)
        x: Tensor = self.out(self.convolutions(flat).flatten(1))
        return x.unflatten(0, frames.shape[:-3])


class ObservationEncoder(nn.Module):
    """The encoder of an agent: convolutions, which several networks may share, and a projection of what they leave to
    features. A state of numbers is its own features."""

    def __init__(self, convolutions: nn.Module, projection: nn.Module, flat: int, width: int):
        super().__init__()
        self.convolutions, self.projection = convolutions, projection
        self.flat, self.width = flat, width  # numbers after the convolutions, and features

    def convolve(self, observations: Tensor) -> Tensor:
        """(B, channels, H, W) or (B, D) -> (B, flat)."""
        x: Tensor = self.convolutions(observations)
        return x.flatten(1)

    def forward(self, observations: Tensor) -> Tensor:
        """(B, channels, H, W) or (B, D) -> (B, C)."""
        x: Tensor = self.projection(self.convolve(observations))
        return x

    @classmethod
    def of_states(cls, size: int) -> ObservationEncoder:
        return cls(nn.Identity(), nn.Identity(), size, size)
