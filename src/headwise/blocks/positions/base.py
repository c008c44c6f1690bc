"""The base class of position configs, and positions that add nothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from headwise.blocks.decode_step import Function
from headwise.blocks.part import BuildContext, ScoreModBuilder, build_no_score_mods
from headwise.blocks.stack import Embedding, Positions
from headwise.blocks.token_embeddings import TokenTable
from headwise.config.base import Config


class PositionConfig(Config):
    """Positions: a position embedding, score mods of every self-attention, or neither."""

    kind: str

    def build_positions(self, width: int) -> Positions:
        """The position embedding that is added to token embeddings."""
        return NoPositions()

    def build_embedding(self, table: TokenTable, width: int, **settings: Any) -> Embedding:
        """The token embedding with these positions."""
        return Embedding(table, self.build_positions(width), **settings)

    def build_grid_positions(self, width: int, grid: tuple[int, int], class_tokens: int) -> nn.Module:
        """The position embedding of patches on a grid, with class tokens before them."""
        return SequencePositions(self.build_positions(width))

    def make_score_mod_builder(self, build_ctx: BuildContext) -> ScoreModBuilder:
        """The function that builds the score mods of a self-attention; a stack calls it for each layer."""
        return build_no_score_mods


class NoPositions(Positions):
    """No position embedding: for models whose positions are score mods, or that need none."""

    adds_vectors = False

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        return x

    def build_decode_step(self) -> Function:
        return lambda x, scale, length, pos: x if scale == 1.0 else x * scale


class SequencePositions(nn.Module):
    """A position embedding of sequences for images: patches are counted row by row, after the class tokens."""

    def __init__(self, positions: nn.Module):
        super().__init__()
        self.positions = positions

    def forward(self, x: Tensor, pos: Tensor, grid: tuple[int, int]) -> Tensor:
        return self.positions(x, pos, 0)
