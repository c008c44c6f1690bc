"""Relative position bias of the patches of a whole image, with a class token (Bao et al. 2022, "BEiT").

Letters: h x w grid, T tokens, H heads.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionLayout, ScoreMod, ScoreModConfig
from headwise.blocks.part import BuildContext

CLASS_ROWS = 3  # from the class token to patches, from patches to it, from it to itself


class GridBias(ScoreMod):
    """Relative position bias of patches: a learned scalar for each head and offset (dy, dx), and three for the class
    token, which is at position 0 before the patches. For another grid the scalars of offsets are interpolated."""

    needs_positions = True

    def __init__(self, heads: int, rows: int, columns: int):
        super().__init__()
        self.rows, self.columns = rows, columns
        self.table = nn.Parameter(torch.zeros((2 * rows - 1) * (2 * columns - 1) + CLASS_ROWS, heads))

    def bias(self, layout: AttentionLayout) -> Tensor:
        assert layout.query_pos is not None and layout.key_pos is not None
        rows, columns = layout.grid or (self.rows, self.columns)
        table = self.resize_table(rows, columns)
        query, key = layout.query_pos.unsqueeze(-1), layout.key_pos.unsqueeze(-2)
        (y, x), (key_y, key_x) = (((pos - 1) // columns, (pos - 1) % columns) for pos in (query, key))
        index = (y - key_y + rows - 1) * (2 * columns - 1) + x - key_x + columns - 1  # (Tq, Tk)
        to_patch, to_token, to_itself = range(len(table) - CLASS_ROWS, len(table))
        index = index.masked_fill(query == 0, to_patch).masked_fill(key == 0, to_token)
        index = index.masked_fill((query == 0) & (key == 0), to_itself)
        return table[index].movedim(-1, -3)  # (Tq, Tk, H) -> (H, Tq, Tk)

    def resize_table(self, rows: int, columns: int) -> Tensor:
        """The table of another grid, by bilinear interpolation."""
        if (rows, columns) == (self.rows, self.columns):
            return self.table
        offsets, class_rows = self.table[:-CLASS_ROWS], self.table[-CLASS_ROWS:]
        offsets = offsets.view(1, 2 * self.rows - 1, 2 * self.columns - 1, -1).permute(0, 3, 1, 2)
        resized = F.interpolate(offsets, (2 * rows - 1, 2 * columns - 1), mode="bilinear")
        return torch.cat((resized[0].flatten(1).t(), class_rows))  # (1, H, h', w') -> (h'w', H)


class GridBiasConfig(ScoreModConfig):
    """BEiT's relative position bias of patches on a grid of `rows` x `columns`, with one class token. `shared`: all
    layers (of as many heads) share one table."""

    kind: Literal["grid_bias"] = "grid_bias"
    rows: int = Field(14, ge=1)
    columns: int = Field(14, ge=1)
    shared: bool = False

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        build_ctx.refuse_causal(self.kind)
        if self.shared:
            return build_ctx.build_once((self, build_ctx.heads), lambda: self._build_table(build_ctx.heads))
        return self._build_table(build_ctx.heads)

    def _build_table(self, heads: int) -> GridBias:
        return GridBias(heads, self.rows, self.columns)
