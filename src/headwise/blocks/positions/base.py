"""What the configs of positions have in common."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from headwise.blocks.part import BuildContext, ScoreMods, no_score_mods
from headwise.blocks.stack import Embedding, Positions
from headwise.blocks.step import Function
from headwise.config.base import Config


class PositionConfig(Config):
    """Positions act on the embeddings, on the scores of every self-attention, or on neither."""

    kind: str

    def embedding(self, width: int) -> Positions:
        return NoPositions()

    def embed(self, table: nn.Embedding, width: int, **settings: Any) -> Embedding:
        """Tokens to vectors with these positions."""
        return Embedding(table, self.embedding(width), **settings)

    def on_grid(self, width: int, grid: tuple[int, int], class_tokens: int) -> nn.Module:
        """Positions of patches on a grid, with class_tokens before them."""
        return SequencePositions(self.embedding(width))

    def score_mods(self, site: BuildContext) -> ScoreMods:
        """What makes the score mods of each self-attention in a stack; called once for each."""
        return no_score_mods


class NoPositions(Positions):
    """Adds nothing: for models whose positions are score mods, or which need none."""

    def forward(self, x: Tensor, pos: Tensor, start: int) -> Tensor:
        return x

    def stepper(self) -> Function:
        return lambda x, scale, length, pos: x if scale == 1.0 else x * scale


class SequencePositions(nn.Module):
    """Positions of texts, for patches counted row by row and class_tokens before them."""

    def __init__(self, positions: nn.Module):
        super().__init__()
        self.positions = positions

    def forward(self, x: Tensor, pos: Tensor, grid: tuple[int, int]) -> Tensor:
        return self.positions(x, pos, 0)
