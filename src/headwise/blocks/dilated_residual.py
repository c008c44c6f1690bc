"""Dilated residual convolutions over maps of pairs: pre-activation bottlenecks, whose dilation goes round in a cycle so
that distant pairs see each other without pooling (He et al. 2016b; Yu and Koltun 2016; Senior et al. 2020).

Letters: B maps, C channels, n x m pairs.
"""

from __future__ import annotations

from torch import Tensor, nn

DILATIONS = (1, 2, 4, 8)


class DilatedBottleneck(nn.Module):
    """x + conv1x1(f(conv3x3(f(conv1x1(f(x)))))) with f = ELU after batch norm; the inner width is half of the outer."""

    def __init__(self, width: int, dilation: int):
        super().__init__()
        inner = width // 2
        self.layers = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ELU(),
            nn.Conv2d(width, inner, 1),
            nn.BatchNorm2d(inner),
            nn.ELU(),
            nn.Conv2d(inner, inner, 3, padding=dilation, dilation=dilation),
            nn.BatchNorm2d(inner),
            nn.ELU(),
            nn.Conv2d(inner, width, 1),
        )

    def init_residual(self) -> None:
        """Zero the last convolution, so that the block begins as the identity."""
        for parameter in self.layers[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, n, m) -> (B, C, n, m)."""
        return x + self.layers(x)


class DilatedTower(nn.Sequential):
    """A convolution of 3 x 3 with ELU to `width` channels, then `depth` dilated bottlenecks."""

    def __init__(self, channels: int, width: int, depth: int):
        first = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.ELU())
        blocks = [DilatedBottleneck(width, DILATIONS[number % len(DILATIONS)]) for number in range(depth)]
        super().__init__(first, *blocks)
