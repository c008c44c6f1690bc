"""Shifted-window attention (Liu et al. 2021, "Swin Transformer: Hierarchical Vision Transformer using Shifted
Windows", section 3.2): its cost is linear in the number of pixels.

The tokens of each window are a row of ordinary attention. Shifted windows roll the grid; tokens of a window that were
no neighbours before are different segments of its row, masked like packed documents.

Letters: B images, W windows, T tokens of a window, C width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import Attention, SelfProjection, find_operands_read
from headwise.blocks.attention.projections import NoKeyBiasProjection, SelectedProjections
from headwise.blocks.attention.score_mods import QUERIES_AND_KEYS
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
from headwise.blocks.stream import Context, Properties, Stream, make_hashable
from headwise.blocks.tables import AnyScore
from headwise.errors import UserError


@dataclass(frozen=True)
class WindowLayout:
    """Indices of a window partition, shared by the layers of a call."""

    order: Tensor  # (WT,) indices of the padded grid, window by window
    inverse: Tensor  # (WT,)
    pos: Tensor  # (T,) of the tokens of a window, row * window + column
    segment: Tensor | None  # (BW, T)


class WindowAttention(Attention):
    """Attention in windows of `window` x `window` tokens; with `shift`, in shifted windows; with `clamp`, in smaller
    windows on a grid with a shorter side."""

    def __init__(self, width: int, heads: int = 8, *, window: int, shift: int = 0, clamp: bool = True, **settings: Any):
        super().__init__(width, heads, **settings)
        self.window, self.shift, self.clamp = window, shift, clamp

    @property
    def properties(self) -> Properties:
        """Without packing: segments are regions of an image here."""
        return replace(super().properties, packing=False)

    def partition(self, grid: tuple[int, int]) -> WindowPartition:
        """The windows of a grid."""
        return WindowPartition.of(grid, self.window, self.shift, self.clamp)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        tiling = self.partition(get_plain_grid(stream, "windows"))
        rows, _, width = stream.x.shape
        layout = self.get_layout(tiling, rows, stream.x.device, ctx)
        x = permute_tokens(pad_grid(stream.x, tiling), layout.order, layout.inverse)
        x = x.view(-1, len(layout.pos), width)  # (B, WT, C) -> (BW, T, C)
        mixed = super().transform(Stream(x, layout.pos, grid=tiling.window, segment=layout.segment), ctx)
        mixed = mixed.view(rows, -1, width)  # (BW, T, C) -> (B, WT, C)
        return crop_grid(permute_tokens(mixed, layout.inverse, layout.order), tiling)

    def get_layout(self, tiling: WindowPartition, rows: int, device: torch.device, ctx: Context) -> WindowLayout:
        key = ("windows", tiling, self.window, make_hashable(rows), device)
        if key not in ctx.shared:
            order = tiling.compute_order(device)
            regions, (height, width) = tiling.compute_regions(order), tiling.window
            row, column = torch.arange(height, device=device), torch.arange(width, device=device)
            ctx.shared[key] = WindowLayout(
                order=order.flatten(),
                inverse=order.flatten().argsort(),
                pos=(self.window * row.unsqueeze(1) + column).flatten(),  # (M, M) -> (T,)
                segment=None if regions is None else regions.repeat(rows, 1),  # (W, T) -> (BW, T)
            )
        layout: WindowLayout = ctx.shared[key]
        return layout


class Permute(torch.autograd.Function):
    """Permute tokens. The backward pass gathers by the inverse order, which is faster than the scatter-add of torch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(order, inverse)
        return x.index_select(1, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        order, inverse = ctx.saved_tensors
        return permute_tokens(grads[0], inverse, order), None, None


def permute_tokens(x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    """(B, T, C) -> (B, T, C), where `inverse` is the inverse of `order`, in one copy; roll and reshape would take
    three."""
    permuted: Tensor = Permute.apply(x, order, inverse)
    return permuted


def pad_grid(x: Tensor, tiling: WindowPartition) -> Tensor:
    """Pad with zeros below and to the right, which are not masked (as in the released code)."""
    if tiling.grid == tiling.padded:
        return x
    (rows, columns), (height, width) = tiling.grid, tiling.padded
    # (B, hw, C) -> (B, h, w, C) -> (B, h', w', C) -> (B, h'w', C)
    return F.pad(x.unflatten(1, tiling.grid), (0, 0, 0, width - columns, 0, height - rows)).flatten(1, 2)


def crop_grid(x: Tensor, tiling: WindowPartition) -> Tensor:
    """Remove the padding of `pad_grid`."""
    rows, columns = tiling.grid
    return x if tiling.grid == tiling.padded else x.unflatten(1, tiling.padded)[:, :rows, :columns].flatten(1, 2)


class WindowsConfig(QKVMixerConfig):
    """Window attention: softmax attention in windows of `window` x `window` tokens. `shift` rolls the grid before it is
    partitioned. A grid whose shorter side fits into a window has unshifted windows of that side, or, without `clamp`,
    is padded. The relative position bias is a learned table, a network of offsets in units of `pretrained_window` (0:
    the window), or none."""

    kind: Literal["windows"] = "windows"
    window: int = Field(7, ge=1)
    shift: int = Field(0, ge=0)
    clamp: bool = True
    position_bias: Literal["table", "network", "none"] = "table"
    pretrained_window: int = Field(0, ge=0)
    key_bias: bool = True  # if the model's attention has biases
    score: AnyScore = ScaledConfig()
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        if self.shift >= self.window:
            raise UserError(
                f"shift: windows of {self.window} can be shifted by up to {self.window - 1}; use half the window"
            )
        arguments = self.resolve_arguments(build_ctx)
        heads, head_width, bias = arguments["heads"], arguments["head_width"], arguments["bias"]
        shape = (build_ctx.width, heads, head_width)
        qkv = NoKeyBiasProjection(*shape) if bias and not self.key_bias else SelfProjection(*shape, bias)
        score, score_mods = (
            self.score.build(head_width, head_width, heads),
            (*self._build_position_bias(heads), *arguments["score_mods"]),
        )
        if (reads := find_operands_read(score, score_mods)) < QUERIES_AND_KEYS:
            qkv = SelectedProjections(*shape, bias, heads, reads)
        return WindowAttention(
            build_ctx.width,
            heads,
            window=self.window,
            shift=self.shift,
            clamp=self.clamp,
            qkv=qkv,
            head_width=head_width,
            score=score,
            score_mods=score_mods,
            kernel=self.kernel,
            dropout=build_ctx.attention_dropout,
            bias=bias,
        )

    def _build_position_bias(self, heads: int) -> tuple[RelativePositionBias, ...]:
        if self.position_bias == "table":
            return (TablePositionBias(heads, self.window),)
        if self.position_bias == "network":
            return (NetworkPositionBias(heads, self.window, self.pretrained_window),)
        return ()
