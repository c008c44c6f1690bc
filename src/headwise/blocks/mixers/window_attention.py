"""Attention inside windows of a grid (Liu et al. 2021, "Swin Transformer: Hierarchical Vision Transformer using Shifted
Windows", section 3.2): its cost is linear in the number of pixels.

The tokens of each window are a row of their own for the one attention. Where windows are shifted, the grid is rolled;
tokens that meet in a window and were no neighbours are different segments of that row, kept apart as packed documents
are.

Letters: B images, W windows, T tokens of a window, C width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import (
    Attention,
    NoKeyBiasProjection,
    SelectedProjections,
    SelfProjection,
    find_operands_read,
)
from headwise.blocks.attention.score_mods import BOTH
from headwise.blocks.attention.scores import ScaledConfig
from headwise.blocks.grid import (
    NetworkPositionBias,
    RelativePositionBias,
    TablePositionBias,
    WindowPartition,
    get_plain_grid,
)
from headwise.blocks.mixers.qkv_mixer import QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Properties, Stream
from headwise.blocks.tables import AnyScore
from headwise.errors import UserError


@dataclass(frozen=True)
class Cut:
    """What the layers of a call that cut alike have in common."""

    order: Tensor  # (WT,) the places of the padded grid, window by window
    back: Tensor  # (WT,) the inverse
    pos: Tensor  # (T,) of a window's tokens, in rows of a whole window
    segment: Tensor | None  # (BW, T)


class WindowAttention(Attention):
    """Attention in windows of `window` x `window` tokens; with `shift` in shifted windows, which lie across the
    others."""

    def __init__(self, width: int, heads: int = 8, *, window: int, shift: int = 0, **settings: Any):
        super().__init__(width, heads, **settings)
        self.window, self.shift = window, shift

    @property
    def properties(self) -> Properties:
        """Its segments are regions of an image."""
        return replace(super().properties, packing=False)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        tiling = WindowPartition.of(get_plain_grid(stream, "windows"), self.window, self.shift)
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
            places = tiling.compute_order(device)
            regions, (high, wide) = tiling.compute_regions(places), tiling.window
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


class WindowsConfig(QKVMixerConfig):
    """Softmax attention in windows of `window` x `window` tokens. `shift` rolls the grid before it is cut. Where a key
    stands, seen from its query, counts by a learned table, by a network (which knows offsets as shares of
    `pretrained_window`; 0: the window), or not at all."""

    kind: Literal["windows"] = "windows"
    window: int = Field(7, ge=1)
    shift: int = Field(0, ge=0)
    position_bias: Literal["table", "network", "none"] = "table"
    pretrained_window: int = Field(0, ge=0)
    key_bias: bool = True  # where the model's attentions have biases
    score: AnyScore = ScaledConfig()
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, site: BuildContext) -> nn.Module:
        site.must_look_ahead(self.kind)
        if self.shift >= self.window:
            raise UserError(
                f"shift: windows of {self.window} can be shifted by up to {self.window - 1}; use half of it"
            )
        arguments = self.resolve_arguments(site)
        heads, head_width, bias = arguments["heads"], arguments["head_width"], arguments["bias"]
        shape = (site.width, heads, head_width)
        qkv = NoKeyBiasProjection(*shape) if bias and not self.key_bias else SelfProjection(*shape, bias)
        score, score_mods = (
            self.score.build(head_width, head_width, heads),
            (*self._offsets(heads), *arguments["score_mods"]),
        )
        if (reads := find_operands_read(score, score_mods)) < BOTH:
            qkv = SelectedProjections(*shape, bias, heads, reads)
        return WindowAttention(
            site.width,
            heads,
            window=self.window,
            shift=self.shift,
            qkv=qkv,
            head_width=head_width,
            score=score,
            score_mods=score_mods,
            kernel=self.kernel,
            dropout=site.attention_dropout,
            bias=bias,
        )

    def _offsets(self, heads: int) -> tuple[RelativePositionBias, ...]:
        if self.position_bias == "table":
            return (TablePositionBias(heads, self.window),)
        return (
            (NetworkPositionBias(heads, self.window, self.pretrained_window),)
            if self.position_bias == "network"
            else ()
        )
