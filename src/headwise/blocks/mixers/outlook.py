"""Outlook attention (Yuan et al. 2021, "VOLO: Vision Outlooker for Visual Recognition", section 3.1): the
attention weights of a window are computed from its centre alone, without keys.

Letters: B images, T = h * w tokens, C width, H heads, D head_width, K side of a window, N windows.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import ApproximateMap
from headwise.blocks.images import count_class_tokens
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Part, Stream
from headwise.errors import UserError


class OutlookAttention(Part):
    """Outlook attention: in a window of K x K around a centre c, y_i = sum_j A_ij v_j with A = softmax(W x_c /
    sqrt(D)), K^2 x K^2 for each head. Windows overlap, and the outputs of a token are summed over its windows
    (algorithm 1).

    Centres are `stride` tokens apart, and x_c is the mean of as many rows and columns. Tokens beyond the edge of the
    image are zeros that get weights, as in the released code.
    """

    def __init__(
        self,
        width: int,
        heads: int = 6,
        *,
        head_width: int = 0,
        window: int = 3,
        stride: int = 2,
        bias: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        if not head_width and width % heads:
            raise UserError(f"heads: a width of {width} cannot be divided among {heads} heads; choose a divisor")
        if window % 2 == 0 or stride > window:
            raise UserError(f"window: needs an odd side of at least the stride of {stride}, not {window}")
        self.heads, self.head_width = heads, head_width or width // heads
        self.window, self.stride, self.dropout = window, stride, dropout
        self.value = nn.Linear(width, heads * self.head_width, bias)
        self.weigh = nn.Linear(width, heads * window**4)
        self.out = nn.Linear(heads * self.head_width, width)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        grid = stream.grid
        if count_class_tokens(stream) or grid is None:
            raise UserError("class_tokens: outlook attention has no class tokens; use class_tokens = 0")
        index, weights = self.index_windows(grid, stream.x.device), self.compute_weights(stream.x, grid)
        ctx.record.observe(ctx.path, ApproximateMap(lambda: self.compute_map(weights, index, grid)))
        values = F.pad(self.value(stream.x), (0, 0, 0, 1))  # (B, T + 1, HD), the last for tokens beyond the edge
        cells = values.index_select(1, index.flatten()).view(values.shape[0], *index.shape, self.heads, -1)
        # (B, N, H, KK, KK) @ (B, N, KK, H, D), heads first -> (B, N, H, KK, D)
        mixed = F.dropout(weights, self.dropout, self.training) @ cells.transpose(2, 3)
        mixed = mixed.transpose(2, 3).flatten(3).flatten(1, 2)  # (B, N, H, KK, D) -> (B, NKK, HD)
        return self.out(torch.zeros_like(values).index_add(1, index.flatten(), mixed)[:, :-1])

    def index_windows(self, grid: tuple[int, int], device: torch.device) -> Tensor:
        """The token indices of each window, (N, KK); T beyond the edge."""
        count = grid[0] * grid[1]
        numbers = torch.arange(-count, 0, dtype=torch.float32, device=device).view(1, 1, *grid)
        windows = F.unfold(
            numbers, self.window, padding=self.window // 2, stride=self.stride
        )  # (1, KK, N), padded by 0
        return windows[0].t().long() + count

    def compute_weights(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """The attention weights of each window: (B, T, C) -> (B, N, H, KK, KK)."""
        centres = F.avg_pool2d(x.mT.unflatten(2, grid), self.stride, self.stride, ceil_mode=True)
        scores = self.weigh(centres.flatten(2).mT) * self.head_width**-0.5  # (B, C, h', w') -> (B, N, HKKKK)
        scores = scores.unflatten(2, (self.heads, self.window**2, self.window**2))
        return scores.movedim(-1, 0).softmax(0).movedim(0, -1)  # torch is slow along such short rows

    def compute_map(self, weights: Tensor, index: Tensor, grid: tuple[int, int]) -> Tensor:
        """The map of all tokens, (B, H, T, T), whose rows do not sum to 1: a token has outputs in every window that it
        is in."""
        count = grid[0] * grid[1]
        pairs = index.unsqueeze(2) * (count + 1) + index.unsqueeze(1)  # (N, KK, KK)
        flat = weights.new_zeros(len(weights), self.heads, (count + 1) ** 2)
        flat = flat.index_add(2, pairs.flatten(), weights.transpose(1, 2).flatten(2))
        return flat.unflatten(2, (count + 1, count + 1))[..., :-1, :-1]


class OutlookConfig(PartConfig):
    """Outlook attention in windows of a grid (Yuan et al. 2021). 0: the model's number."""

    kind: Literal["outlook"] = "outlook"
    heads: int = Field(0, ge=0)
    head_width: int = Field(0, ge=0)
    window: int = Field(3, ge=1)
    stride: int = Field(2, ge=1)  # between centres
    value_bias: bool = False

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        return OutlookAttention(
            build_ctx.width,
            self.heads or build_ctx.heads,
            head_width=self.head_width or build_ctx.head_width,
            window=self.window,
            stride=self.stride,
            bias=self.value_bias,
            dropout=build_ctx.attention_dropout,
        )
