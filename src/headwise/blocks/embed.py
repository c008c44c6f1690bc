"""Tokens to vectors: a table, a scale, positions, types, a norm, dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.blocks.dropout import make_dropout
from headwise.blocks.step import EmbeddingStep, EmbedTokens, Function, FunctionStep, PositionStep, inline
from headwise.blocks.stream import Stream


class NoTokenTypes(nn.Module, FunctionStep):
    """Adds nothing: one text is like another."""

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return x

    def stepper(self) -> Function:
        return lambda x, tokens: x


class TokenTypes(nn.Module, FunctionStep):
    """Token type embedding: x + table[which of the texts a token belongs to] (Devlin et al. 2019: segment A or B). A
    text ends with the mark `end`, which still belongs to it; texts beyond the last type are of that type."""

    def __init__(self, width: int, count: int = 2, end: int = 2):
        super().__init__()
        self.table = nn.Embedding(count, width)
        self.end = end

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        ends = ids == self.end
        before = ends.cumsum(1) - ends.long()
        return x + self.table(before.clamp(max=self.table.num_embeddings - 1))

    def stepper(self) -> Function:
        return lambda x, tokens: self(x.unsqueeze(1), tokens.unsqueeze(1)).squeeze(1)  # (R, C) -> (R, 1, C) and back


class Positions(nn.Module, PositionStep):
    """Positions that act on embeddings, `positions(x, pos, start)`: `start` >= 0 says that `pos` is start, start + 1,
    ...; -1 that it is anything."""

    max_length: int = 0  # how many positions there are; 0: any number


class Embedding(nn.Module, EmbeddingStep):
    """The token embedding: widen(dropout(norm(table[ids] * scale + position + type))).

    The table may be shared with another embedding and with the head. `widen` goes from vectors narrower than the
    model's to its own width (Lan et al. 2020: a large table in two factors).
    """

    def __init__(
        self,
        table: nn.Embedding,
        positions: Positions,
        scale: float = 1.0,
        dropout: float = 0.0,
        types: nn.Module | None = None,
        norm: nn.Module | None = None,
        widen: nn.Module | None = None,
    ):
        super().__init__()
        self.table = table
        self.positions = positions
        self.scale = scale
        self.drop = make_dropout(dropout)
        self.types = types if types is not None else NoTokenTypes()
        self.norm = norm if norm is not None else nn.Identity()
        self.widen = widen if widen is not None else nn.Identity()

    def forward(self, ids: Tensor, keep: Tensor | None = None, start: int = 0, pos: Tensor | None = None) -> Stream:
        """(B, T) ids -> a stream of (B, T, C) whose first token stands at position `start`, or all at `pos`."""
        if pos is None:
            pos = torch.arange(start, start + ids.shape[1], device=ids.device)
        else:
            start = -1
        x = self.table(ids)
        if self.scale != 1.0:
            x = x * self.scale
        x = self.types(self.positions(x, pos, start), ids)
        return Stream(self.widen(self.drop(self.norm(x))), pos, keep)

    def stepper(self) -> EmbedTokens:
        table, scale, add_position, add_type = (
            inline(self.table),
            self.scale,
            self.positions.stepper(),
            inline(self.types),
        )
        norm, drop, widen = inline(self.norm), inline(self.drop), inline(self.widen)

        def step(tokens: Tensor, length: int, gaps: Tensor | None) -> Stream:
            pos = None if gaps is None else length - gaps  # (R, 1)
            x = add_type(add_position(table(tokens), scale, length, pos), tokens)  # (R,) -> (R, C)
            pos = torch.arange(length, length + 1, device=tokens.device) if pos is None else pos
            return Stream(widen(drop(norm(x))).unsqueeze(1), pos)

        return step
