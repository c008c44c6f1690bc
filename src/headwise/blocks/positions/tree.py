"""Structural position representations: positions in the dependency tree of a sentence (Wang et al. 2019,
"Self-Attention with Structural Position Representations").

A tree is given by the head of each word, counted from 1; the root and the padding have 0.

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
from headwise.blocks.part import BuildContext, ScoreModBuilder
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.positions.base import NoPositions, PositionConfig
from headwise.blocks.positions.relative import ShawRelative
from headwise.blocks.stack import Embedding
from headwise.blocks.stream import Stream
from headwise.blocks.token_embeddings import TokenTable
from headwise.errors import UserError


def find_ancestors(heads: Tensor) -> Tensor:
    """Whether word j is word i or an ancestor of it, (B, T) -> (B, T, T), by repeated squaring.

    >>> find_ancestors(torch.tensor([[2, 0, 2]]))[0].int().tolist()
    [[1, 1, 0], [0, 1, 0], [0, 1, 1]]
    """
    length = heads.shape[1]
    parents = nn.functional.one_hot(heads.clamp(max=length), length + 1)[..., 1:].float()  # (B, T, T), zeros for 0
    reachable = parents + torch.eye(length, device=heads.device)
    for _ in range(ceil(log2(max(length, 2)))):
        reachable = (reachable @ reachable).clamp(max=1.0)
    return reachable > 0


def compute_depths(ancestors: Tensor) -> Tensor:
    """The depth of each word in the tree, (B, T, T) -> (B, T)."""
    return ancestors.sum(-1) - 1


def compute_relations(heads: Tensor) -> Tensor:
    """Relative structural positions of words i and j, (B, T) -> (B, T, T): on one path to the root their difference in
    depth, otherwise the length of the path over the root, signed by the order of the words."""
    ancestors = find_ancestors(heads)
    depth = compute_depths(ancestors)
    difference = depth.unsqueeze(1) - depth.unsqueeze(2)  # depth_j - depth_i
    over_root = depth.unsqueeze(1) + depth.unsqueeze(2)
    pos = torch.arange(heads.shape[1], device=heads.device)
    order = (pos - pos.unsqueeze(1)).sign()
    return torch.where(ancestors | ancestors.transpose(1, 2), difference, over_root * order)


class TreeEmbedding(Embedding):
    """The embedding of tokens whose ids contain their heads: id = word + V * head (text/parsed.py)."""

    def forward(self, ids: Tensor, keep: Tensor | None = None, start: int = 0, pos: Tensor | None = None) -> Stream:
        vocab = self.table.num_embeddings
        stream = super().forward(ids % vocab, keep, start, pos)
        tree = ids.div(vocab, rounding_mode="floor")
        return replace(stream, x=self.absolute(stream.x, stream.pos, tree), tree=tree)

    absolute: nn.Module


class FusedTreePositions(nn.Module):
    """Absolute structural positions: x + tanh(W p + U d), the sinusoids of the position in the sentence and of the
    depth in the tree."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.place = nn.Linear(width, width, bias=False)
        self.depth = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, pos: Tensor, tree: Tensor) -> Tensor:
        place = build_sinusoids(pos, self.width).to(x.dtype)
        depth = build_sinusoids(compute_depths(find_ancestors(tree)), self.width).to(x.dtype)
        return x + torch.tanh(self.place(place) + self.depth(depth))


class SentencePositions(nn.Module):
    """Sinusoidal positions in the sentence alone, where the tree is in the scores."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x: Tensor, pos: Tensor, tree: Tensor) -> Tensor:
        return x + build_sinusoids(pos, self.width).to(x.dtype)


class TreeRelations(ShawRelative):
    """Shaw's relative position representations, with relative structural positions for distances."""

    def _index_distances(self, inputs: AttentionInputs) -> Tensor:
        index = self._index_relations(inputs.layout)
        return index.unsqueeze(1).expand(*inputs.q.shape[:2], *index.shape[-2:])  # (B, Tq, Tk) -> (B, H, Tq, Tk)

    def _index_relations(self, layout: AttentionLayout) -> Tensor:
        assert layout.tree is not None and layout.query_pos is not None, "tree positions need tokens with heads"
        index = compute_relations(layout.tree).clamp(-self.max_distance, self.max_distance) + self.max_distance
        return index.index_select(1, layout.query_pos)  # a chunk may have some of the queries


class TreeConfig(PositionConfig):
    """Positions in a dependency tree beside those in the sentence, for the tokeniser `parsed`."""

    kind: Literal["tree"] = "tree"
    absolute: bool = True  # depths in the tree, added to the embeddings
    relative: bool = True  # relative structural positions, as Shaw's distances
    max_distance: int = Field(16, ge=1)

    def build_embedding(self, table: TokenTable, width: int, **settings: Any) -> Embedding:
        embedding = TreeEmbedding(table, NoPositions(), **settings)
        projection = settings.get("projection")
        width = projection.out_features if projection is not None else width  # positions are added after it
        embedding.absolute = FusedTreePositions(width) if self.absolute else SentencePositions(width)
        return embedding

    def make_score_mod_builder(self, build_ctx: BuildContext) -> ScoreModBuilder:
        if build_ctx.causal:
            raise UserError("positions: 'tree' needs the whole sentence; use it in an encoder")
        return lambda heads, head_width: (TreeRelations(head_width, self.max_distance),) if self.relative else ()
