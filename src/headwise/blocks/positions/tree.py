"""Positions in the dependency tree of a sentence (Wang et al. 2019, "Self-Attention with Structural Position
Representations").

A tree is given by the head of each word, counted from 1; 0 is the root's, and the padding's.

Letters: B rows, T length, C width, V vocab.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout
from headwise.blocks.part import BuildContext, ScoreMods
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.positions.base import NoPositions, PositionConfig
from headwise.blocks.positions.relative import ShawRelative
from headwise.blocks.stack import Embedding
from headwise.blocks.stream import Stream
from headwise.errors import UserError


def ancestors(heads: Tensor) -> Tensor:
    """Whether word j is word i or above it, (B, T) -> (B, T, T), by doubling the way that is looked up.

    >>> ancestors(torch.tensor([[2, 0, 2]]))[0].int().tolist()
    [[1, 1, 0], [0, 1, 0], [0, 1, 1]]
    """
    length = heads.shape[1]
    steps = nn.functional.one_hot(heads.clamp(max=length), length + 1)[..., 1:].float()  # (B, T, T), nothing for 0
    reach = steps + torch.eye(length, device=heads.device)
    for _ in range(ceil(log2(max(length, 2)))):
        reach = (reach @ reach).clamp(max=1.0)
    return reach > 0


def depths(above: Tensor) -> Tensor:
    """How far each word is from the root, (B, T, T) -> (B, T)."""
    return above.sum(-1) - 1


def relations(heads: Tensor) -> Tensor:
    """Where word j stands, seen from word i, (B, T, T): on one way to the root their difference in depth, otherwise the
    length of the way over the root, signed by the order of the words."""
    above = ancestors(heads)
    depth = depths(above)
    down = depth.unsqueeze(1) - depth.unsqueeze(2)  # depth_j - depth_i
    around = depth.unsqueeze(1) + depth.unsqueeze(2)
    places = torch.arange(heads.shape[1], device=heads.device)
    order = (places - places.unsqueeze(1)).sign()
    return torch.where(above | above.transpose(1, 2), down, around * order)


class TreeEmbedding(Embedding):
    """Tokens that carry their heads: id = word + V * head (text/parsed.py)."""

    def forward(self, ids: Tensor, keep: Tensor | None = None, start: int = 0, pos: Tensor | None = None) -> Stream:
        words = self.table.num_embeddings
        stream = super().forward(ids % words, keep, start, pos)
        tree = ids.div(words, rounding_mode="floor")
        return replace(stream, x=self.absolute(stream.x, stream.pos, tree), tree=tree)

    absolute: nn.Module


class Fusion(nn.Module):
    """x + tanh(W p + U d): the sinusoids of the place in the sentence and of the depth in the tree, joined."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.place = nn.Linear(width, width, bias=False)
        self.depth = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, pos: Tensor, tree: Tensor) -> Tensor:
        place = build_sinusoids(pos, self.width).to(x.dtype)
        depth = build_sinusoids(depths(ancestors(tree)), self.width).to(x.dtype)
        return x + torch.tanh(self.place(place) + self.depth(depth))


class Apart(nn.Module):
    """x + sinusoid of the place in the sentence: the tree counts in the scores alone."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x: Tensor, pos: Tensor, tree: Tensor) -> Tensor:
        return x + build_sinusoids(pos, self.width).to(x.dtype)


class TreeRelations(ShawRelative):
    """Shaw's score mod, with the tree's relations for distances."""

    def _where(self, inputs: AttentionInputs) -> Tensor:
        found = self._relations(inputs.layout)
        return found.unsqueeze(1).expand(*inputs.q.shape[:2], *found.shape[-2:])  # (B, Tq, Tk) -> (B, H, Tq, Tk)

    def _relations(self, layout: AttentionLayout) -> Tensor:
        assert layout.tree is not None and layout.query_pos is not None, "tree positions need tokens with heads"
        found = relations(layout.tree).clamp(-self.max_distance, self.max_distance) + self.max_distance
        return found.index_select(1, layout.query_pos)  # the queries of a chunk


class TreeConfig(PositionConfig):
    """Places in a dependency tree beside those in the sentence; for tokens that carry them (tokeniser `parsed`)."""

    kind: Literal["tree"] = "tree"
    absolute: bool = True  # depths, joined with places
    relative: bool = True  # relations of words, as Shaw's distances
    max_distance: int = Field(16, ge=1)

    def embed(self, table: nn.Embedding, width: int, **settings: Any) -> Embedding:
        embedding = TreeEmbedding(table, NoPositions(), **settings)
        widen = settings.get("widen")
        width = widen.out_features if widen is not None else width  # places are added to what leaves the embedding
        embedding.absolute = Fusion(width) if self.absolute else Apart(width)
        return embedding

    def score_mods(self, site: BuildContext) -> ScoreMods:
        if site.causal:
            raise UserError("positions: a tree is known when a sentence is whole; only encoders can have one")
        return lambda heads, head_width: (TreeRelations(head_width, self.max_distance),) if self.relative else ()
