"""Token embeddings: one table, or adaptive input embeddings (Baevski and Auli 2019, "Adaptive Input Representations for
Neural Language Modeling").

Adaptive embeddings divide the ids into clusters at `cutoffs`, give each cluster a table of its own width, and project
its vectors to the width of the model. Frequent tokens get wide vectors, so the ids should be ranked by frequency, which
is a matter of the tokeniser (docs/experiments.md).

Letters: B rows, T length, C width, V vocab.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, Self, TypeAlias

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.config.base import Config, PositiveInt, Problems
from headwise.errors import UserError


class Projection(nn.Linear):
    """x W^T of vectors to the width of the model. Output layers also use its transpose, so it is never quantised."""

    def __init__(self, inputs: int, width: int):
        super().__init__(inputs, width, bias=False)


@dataclass(frozen=True)
class Clusters:
    """Clusters of consecutive ids: their sizes, the widths of their vectors, and which are projected to the width of
    the model."""

    sizes: tuple[int, ...]
    widths: tuple[int, ...]
    projected: tuple[bool, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """The first id of each cluster.

        >>> Clusters((4, 2, 5), (8, 2, 2), (False, True, True)).starts
        (0, 4, 6)
        """
        return tuple(accumulate(self.sizes[:-1], initial=0))

    @property
    def vocab(self) -> int:
        return sum(self.sizes)

    def __str__(self) -> str:
        return ", ".join(f"{size:,} x {width}" for size, width in zip(self.sizes, self.widths, strict=True))


class AdaptiveEmbedding(nn.Module):
    """Adaptive input embedding: the vector of id v in cluster i is P_i E_i[v - start_i]. Has the attributes of an
    nn.Embedding; `weight` (V, C) is computed from tables and projections."""

    def __init__(self, clusters: Clusters, width: int):
        super().__init__()
        self.clusters, self.num_embeddings, self.embedding_dim = clusters, clusters.vocab, width
        sizes = zip(clusters.sizes, clusters.widths, strict=True)
        self.tables = nn.ModuleList(nn.Embedding(size, inputs) for size, inputs in sizes)
        self.projections = build_projections(clusters.widths, clusters.projected, width)

    def forward(self, ids: Tensor) -> Tensor:
        starts, last = self.clusters.starts, len(self.tables) - 1
        x: Tensor | None = None
        for number, (start, size) in enumerate(zip(starts, self.clusters.sizes, strict=True)):
            # Ids of other clusters are clamped; those outside the vocabulary are not, so that they raise an error.
            rows = ids - start
            rows = rows.clamp(max=size - 1) if number < last else rows
            rows = rows.clamp(min=0) if number > 0 else rows
            vectors = self.projections[number](self.tables[number](rows))  # (B, T) -> (B, T, C)
            x = vectors if x is None else torch.where((ids >= start).unsqueeze(-1), vectors, x)
        assert x is not None
        return x

    @property
    def weights(self) -> list[Tensor]:
        """The table of each cluster, (V_c, W)."""
        return [table.weight for table in self.tables if isinstance(table, nn.Embedding)]

    @property
    def weight(self) -> Tensor:
        """The vectors of all tokens, (V, C)."""
        pairs = zip(self.projections, self.weights, strict=True)
        return torch.cat([projection(weight) for projection, weight in pairs])

    def compute_logits(self, x: Tensor) -> Tensor:
        """x weight^T, cluster by cluster, without the product of tables and projections: (B, T, C) -> (B, T, V)."""
        pairs = zip(self.projections, self.weights, strict=True)
        return torch.cat([F.linear(project_back(x, projection), weight) for projection, weight in pairs], -1)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


TokenTable: TypeAlias = nn.Embedding | AdaptiveEmbedding


def build_projections(widths: tuple[int, ...], projected: tuple[bool, ...], width: int) -> nn.ModuleList:
    """The projections of clusters to the width of the model; the identity for those without one."""
    pairs = zip(widths, projected, strict=True)
    return nn.ModuleList(Projection(inputs, width) if needed else nn.Identity() for inputs, needed in pairs)


def project_back(x: Tensor, projection: nn.Module) -> Tensor:
    """Vectors of the model, projected to the width of a cluster by the transpose: (B, T, C) -> (B, T, W)."""
    return F.linear(x, projection.weight.t()) if isinstance(projection, Projection) else x


def compute_logits(x: Tensor, table: TokenTable, bias: Tensor | None) -> Tensor:
    """Logits x E^T + b over all tokens of a table: (B, T, C) -> (B, T, V)."""
    if isinstance(table, nn.Embedding):
        return F.linear(x, table.weight, bias)
    logits = table.compute_logits(x)
    return logits if bias is None else logits + bias


def build_table(clusters: Clusters, width: int) -> TokenTable:
    """The table of clusters: an ordinary one if all have the width of the model and none is projected."""
    if any(clusters.projected):
        return AdaptiveEmbedding(clusters, width)
    return nn.Embedding(clusters.vocab, width)


class ClusterFields(Config):
    """Settings of clusters of token ids."""

    cutoffs: tuple[PositiveInt, ...] = ()  # the first id of each cluster but the first, increasing
    widths: tuple[PositiveInt, ...] = ()  # of each cluster's vectors; empty: by div_value
    div_value: float = Field(4.0, ge=1)  # each cluster is narrower than the one before by this factor, from the width
    # Clusters that have a projection: those of another width than the model, all but the first, or all.
    projections: Literal["narrower", "tails", "all"] = "narrower"

    @model_validator(mode="after")
    def _check_cutoffs(self) -> Self:
        if any(first >= second for first, second in pairwise(self.cutoffs)):
            raise Problems([(("cutoffs",), f"{list(self.cutoffs)} do not increase; sort them, without duplicates")])
        if self.widths and len(self.widths) != len(self.cutoffs) + 1:
            count = f"{len(self.cutoffs)} cutoffs make {len(self.cutoffs) + 1} clusters"
            raise Problems([(("widths",), f"{count}, and there are {len(self.widths)} widths; give one for each")])
        return self

    def make_clusters(self, vocab: int, width: int, place: str) -> Clusters:
        """The clusters of a vocabulary in a model of this width; `place` is the setting that has them, for errors."""
        if not self.cutoffs:
            raise UserError(
                f"{place}.cutoffs: there are none; give the ids at which clusters begin, as in [2000, 9000]"
            )
        if self.cutoffs[-1] >= vocab:
            raise UserError(
                f"{place}.cutoffs: {self.cutoffs[-1]} is beyond the vocabulary of {vocab} tokens; choose cutoffs "
                "below it"
            )
        widths = self.widths or tuple(int(width // self.div_value**i) for i in range(len(self.cutoffs) + 1))
        if not all(widths):
            raise UserError(
                f"{place}.div_value: {self.div_value:g} leaves no channel of {width} to the last of {len(widths)} "
                "clusters; choose a smaller one, or set widths"
            )
        projected = tuple(
            inputs != width or self.projections == "all" or (self.projections == "tails" and number > 0)
            for number, inputs in enumerate(widths)
        )
        sizes = tuple(end - start for start, end in pairwise((0, *self.cutoffs, vocab)))
        return Clusters(sizes, widths, projected)


class TokenEmbeddingConfig(Config):
    """A token embedding: `build(vocab, width)` returns a module with the attributes of an nn.Embedding."""

    kind: str

    def build(self, vocab: int, width: int) -> TokenTable:
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the table")


class TableConfig(TokenEmbeddingConfig):
    """An embedding table with one row for each token."""

    kind: Literal["table"] = "table"

    def build(self, vocab: int, width: int) -> TokenTable:
        return nn.Embedding(vocab, width)


class AdaptiveEmbeddingConfig(ClusterFields, TokenEmbeddingConfig):
    """Adaptive input embeddings (Baevski and Auli 2019)."""

    kind: Literal["adaptive"] = "adaptive"

    def build(self, vocab: int, width: int) -> TokenTable:
        return build_table(self.make_clusters(vocab, width, "token_embedding"), width)
