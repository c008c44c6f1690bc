"""Windows of a grid: partition, relative position bias, and patch merging (Liu et al. 2021, "Swin Transformer", section
3; Liu et al. 2022, "Swin Transformer V2").

Letters: B images, h x w grid, M side of a window, W windows, T tokens of a window, C width, H heads.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionLayout, ScoreMod
from headwise.blocks.images import count_class_tokens
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError

Pair = tuple[int, int]


def get_plain_grid(stream: Stream, layer: str) -> Pair:
    """The grid of a stream without class tokens; `layer` is named in the error."""
    if count_class_tokens(stream):
        raise UserError(f"class_tokens: {layer} cannot have class tokens; use class_tokens = 0")
    assert stream.grid is not None
    return stream.grid


@dataclass(frozen=True)
class WindowPartition:
    """Partition of a grid into windows, after a cyclic shift up and left by `shift`; padded to whole windows.

    >>> WindowPartition.of((56, 56), 7, 3)
    WindowPartition(grid=(56, 56), window=(7, 7), shift=(3, 3))
    >>> WindowPartition.of((7, 14), 8, 4)  # one window holds all rows
    WindowPartition(grid=(7, 14), window=(7, 7), shift=(0, 0))
    """

    grid: Pair
    window: Pair
    shift: Pair

    @classmethod
    def of(cls, grid: Pair, window: int, shift: int, clamp: bool = True) -> WindowPartition:
        """With `clamp`, a grid whose shorter side fits into a window has windows of that side, which are not shifted
        (as in the released code)."""
        if clamp and min(grid) <= window:
            window, shift = min(grid), 0
        return cls(grid, (window, window), (shift, shift))

    @property
    def padded(self) -> Pair:
        """The smallest grid of whole windows."""
        (rows, columns), (height, width) = self.grid, self.window
        return math.ceil(rows / height) * height, math.ceil(columns / width) * width

    def compute_order(self, device: torch.device | None = None) -> Tensor:
        """The indices of the padded grid, row by row, of the tokens of each window: (W, T)."""
        (rows, columns), (height, width), (down, right) = self.padded, self.window, self.shift
        rolled = torch.arange(rows * columns, device=device).view(rows, columns).roll((-down, -right), (0, 1))
        # (h, w) -> (h / M, M, w / M, M) -> (W, T)
        return rolled.view(rows // height, height, columns // width, width).transpose(1, 2).reshape(-1, height * width)

    def compute_regions(self, order: Tensor) -> Tensor | None:
        """Labels of the tokens of each window, equal if they were neighbours before the shift: (W, T)."""
        if not any(self.shift):
            return None
        columns = self.padded[1]
        return 2 * (order // columns < self.shift[0]) + (order % columns < self.shift[1]).long()


class RelativePositionBias(ScoreMod):
    """Relative position bias of tokens in a window of `window` x `window`. Positions are row * window + column, so that
    smaller windows read the middle of the same table."""

    needs_positions = True

    def __init__(self, window: int):
        super().__init__()
        self.window = window

    @abstractmethod
    def compute_table(self) -> Tensor:
        """A bias for each offset and head, row by row: ((2M - 1)^2, H)."""

    def bias(self, layout: AttentionLayout) -> Tensor:
        assert layout.query_pos is not None and layout.key_pos is not None
        span = 2 * self.window - 1
        # Positions row * span + column, whose difference determines the offsets of rows and of columns.
        query, key = (pos + pos // self.window * (self.window - 1) for pos in (layout.query_pos, layout.key_pos))
        index = query.unsqueeze(-1) - key.unsqueeze(-2) + (span * span - 1) // 2  # (Tq, Tk)
        return self.compute_table()[index].movedim(-1, -3)  # (Tq, Tk, H) -> (H, Tq, Tk)


class TablePositionBias(RelativePositionBias):
    """A learned scalar for each head and offset (Liu et al. 2021, equation 4)."""

    def __init__(self, heads: int, window: int):
        super().__init__(window)
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))

    def compute_table(self) -> Tensor:
        return self.table


class NetworkPositionBias(RelativePositionBias):
    """16 sigmoid(G(offset)) with a network G: 2 -> hidden -> H of the offset's logarithm, defined for windows of
    any size (Liu et al. 2022, equations 3 and 4). Offsets are in units of `reach`, the window of its training.

    DISCREPANCY: the paper's logarithm is natural and of the offset itself; the released code divides it by the window
    and takes log2(1 + 8 |offset|) / log2(8). The sigmoid is the code's, too.
    """

    def __init__(self, heads: int, window: int, reach: int = 0, hidden: int = 512):
        super().__init__(window)
        self.reach = reach or window
        self.inner = nn.Linear(2, hidden)
        self.outer = nn.Linear(hidden, heads, bias=False)

    def compute_table(self) -> Tensor:
        weight = self.inner.weight
        steps = torch.arange(1 - self.window, self.window, device=weight.device).to(weight.dtype)
        offsets = 8 * steps / max(self.reach - 1, 1)
        offsets = offsets.sign() * (1 + offsets.abs()).log2() / 3  # log2(8) is 3
        pairs = torch.cartesian_prod(offsets, offsets)  # ((2M - 1)^2, 2)
        return 16 * self.outer(F.relu(self.inner(pairs))).sigmoid()


class PatchMerging(nn.Module):
    """Patch merging: a layer that concatenates 2 x 2 neighbours and projects their 4C channels by `project`, on half
    the grid. Odd sides are padded with zeros."""

    def __init__(self, project: nn.Module):
        super().__init__()
        self.project = project

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        rows, columns = get_plain_grid(stream, "merging")
        cells = stream.x.unflatten(1, (rows, columns))
        if rows % 2 or columns % 2:
            cells = F.pad(cells, (0, 0, 0, columns % 2, 0, rows % 2))
        grid = (math.ceil(rows / 2), math.ceil(columns / 2))
        # (B, h, w, C) -> (B, h/2, 2, w/2, 2, C) -> (B, h/2, w/2, 2, 2, C), columns before rows as in the released code
        merged = cells.unflatten(2, (grid[1], 2)).unflatten(1, (grid[0], 2)).permute(0, 1, 3, 4, 2, 5)
        x = self.project(merged.flatten(3).flatten(1, 2))  # (B, hw/4, 4C) -> (B, hw/4, C')
        return Stream(x, torch.arange(x.shape[1], device=x.device), grid=grid)
