"""Attention inside windows of a grid (Liu et al. 2021, "Swin Transformer: Hierarchical Vision Transformer using Shifted
Windows", section 3.2): its cost is linear in the number of pixels.

The tokens of each window are a row of their own for the one attention. Where windows are shifted, the grid is rolled;
tokens that meet in a window and were no neighbours are different segments of that row, kept apart as packed documents
are.

Letters: B images, W windows, T tokens of a window, C width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.blocks.attention.multihead import Attention
from headwise.blocks.grid import WindowPartition, bare_grid
from headwise.blocks.stream import Context, Stream


@dataclass(frozen=True)
class Cut:
    """What the layers of a call that cut alike have in common."""

    order: Tensor  # (WT,) the places of the padded grid, window by window
    back: Tensor  # (WT,) the inverse
    pos: Tensor  # (T,) of a window's tokens, in rows of a whole window
    segment: Tensor | None  # (BW, T)


class WindowAttention(Attention):
    """Attention of the tokens in each window of `window` x `window`; with `shift`, in windows that lie across those
    without."""

    def __init__(self, width: int, heads: int = 8, *, window: int, shift: int = 0, **settings: Any):
        super().__init__(width, heads, **settings)
        self.window, self.shift = window, shift

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        tiling = WindowPartition.of(bare_grid(stream, "windows"), self.window, self.shift)
        rows, _, width = stream.x.shape
        cut = self.cut(tiling, rows, stream.x.device, ctx)
        x = arranged(padded(stream.x, tiling), cut.order, cut.back)
        x = x.view(-1, len(cut.pos), width)  # (B, WT, C) -> (BW, T, C)
        mixed = super().transform(Stream(x, cut.pos, grid=tiling.window, segment=cut.segment), ctx)
        mixed = mixed.view(rows, -1, width)  # (BW, T, C) -> (B, WT, C)
        return cropped(arranged(mixed, cut.back, cut.order), tiling)

    def cut(self, tiling: WindowPartition, rows: int, device: torch.device, ctx: Context) -> Cut:
        key = ("windows", tiling, self.window, rows, device)
        if key not in ctx.shared:
            places = tiling.places(device)
            regions, (high, wide) = tiling.regions(places), tiling.window
            down, right = torch.arange(high, device=device), torch.arange(wide, device=device)
            ctx.shared[key] = Cut(
                order=places.flatten(),
                back=places.flatten().argsort(),
                pos=(self.window * down.unsqueeze(1) + right).flatten(),  # (M, M) -> (T,)
                segment=None if regions is None else regions.repeat(rows, 1),  # (W, T) -> (BW, T)
            )
        found: Cut = ctx.shared[key]
        return found


class Permute(torch.autograd.Function):
    """Tokens in another order. The gradient goes back by the inverse order; torch's own would add it into zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(order, back)
        return x.index_select(1, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        order, back = ctx.saved_tensors
        return arranged(grads[0], back, order), None, None


def arranged(x: Tensor, order: Tensor, back: Tensor) -> Tensor:
    """(B, T, C) -> (B, T, C), where `back` is the inverse of `order`: one copy; to roll and to cut would take three."""
    found: Tensor = Permute.apply(x, order, back)
    return found


def padded(x: Tensor, tiling: WindowPartition) -> Tensor:
    """Zeros below and to the right, which are seen like all others (as in the released code)."""
    if tiling.grid == tiling.padded:
        return x
    (rows, columns), (high, wide) = tiling.grid, tiling.padded
    # (B, hw, C) -> (B, h, w, C) -> (B, h', w', C) -> (B, h'w', C)
    return F.pad(x.unflatten(1, tiling.grid), (0, 0, 0, wide - columns, 0, high - rows)).flatten(1, 2)


def cropped(x: Tensor, tiling: WindowPartition) -> Tensor:
    """What was there before the padding."""
    rows, columns = tiling.grid
    return x if tiling.grid == tiling.padded else x.unflatten(1, tiling.padded)[:, :rows, :columns].flatten(1, 2)
