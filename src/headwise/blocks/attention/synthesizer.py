"""Scores that compare no tokens: Synthesizer (Tay et al. 2020, "Synthesizer: Rethinking Self-Attention in Transformer
Models"), and their mixtures with those that do, as Narang et al. (2021) measured them in the self-attention of T5:

    dense                           W relu(q)
    mixture of scaled and dense     q k / sqrt(D) + W relu(q)
    the same, gated                 (1 - g) q k / sqrt(D) + g W relu(q), where g = sigmoid(a) and a begins as 0
    factorised                      R1 R2^T of rank 16
    random                          R of (N, H, N)
    mixture of scaled and random    q k / sqrt(D) + R
    the same, gated                 (1 - g) q k / sqrt(D) + g R

Masks, relative biases and the values' mixture are those of any attention. Keys are known by their places in a row, so
a row may have at most N tokens, and documents that are packed into one are not told apart by them.

A score says what it `reads`, and self-attention projects nothing else: the dense form has no keys, the factorised and
random ones have neither keys nor queries (Tay et al., section 3: Y = softmax(R) G(X)).

DISCREPANCY: in the released code of the factorised form both factors run over the keys, so that all queries see alike;
here R1 runs over the queries, as in the paper.

Letters: B rows, H heads, Tq queries, Tk keys, D head_width, N max_length, K rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import Score
from headwise.blocks.attention.scores import Location, ScaledConfig, ScoreConfig, places
from headwise.blocks.tables import AnyScore
from headwise.errors import UserError


class Dense(Location):
    """Row j of W2 relu(W1 x) for the key at place j; W1 is what makes q of x, as in the released code."""

    kind = "dense"

    def project_query(self, q: Tensor) -> Tensor:
        return super().project_query(q.relu())  # (B, H, Tq, D) -> (B, H, Tq, N)


class FactorisedDense(Dense):
    """Place j = b n + c has the product of row b of one small dense score and row c of another, n = ceil(sqrt(N))."""

    def __init__(self, width_q: int, heads: int, max_length: int):
        super().__init__(width_q, heads, 2 * math.isqrt(max_length - 1) + 2)  # both in one product
        self.max_length = max_length

    def project_query(self, q: Tensor) -> Tensor:
        far, near = super().project_query(q).chunk(2, dim=-1)  # 2 x (B, H, Tq, n)
        return (far.unsqueeze(-1) * near.unsqueeze(-2)).flatten(-2)  # (B, H, Tq, n, n) -> (B, H, Tq, n^2)


class Random(Score):
    """R_ij for the query at place i and the key at place j, whatever stands there; R begins as N(0, 1). For
    self-attention, where the last query stands at the last key."""

    length_free = False
    needs_all_queries = True
    kind: ClassVar[str] = "random"
    reads = frozenset()

    def __init__(self, heads: int, max_length: int, learned: bool = True):
        super().__init__()
        self.max_length = max_length
        self.table = nn.Parameter(torch.randn(heads, max_length, max_length), requires_grad=learned)

    def rows(self, start: int, end: int) -> Tensor:
        """Of the queries at places `start` ... `end` - 1, for as many keys: (H, Tq, Tk)."""
        return self.table[:, start:end, :end]

    def project_query(self, q: Tensor) -> Tensor:
        return q[..., :0]  # only how many they are counts

    def match(self, asked: Tensor, keys: Tensor) -> Tensor:
        queries, length = asked.shape[2], places(keys, self.max_length, self.kind)
        if queries not in (1, length):  # cut into chunks, or of another text: nobody knows their places
            raise UserError(
                f"score: '{self.kind}' needs all queries of a text at once, not {queries} of {length}; "
                "use it with attend_to = 'self' and kernel = 'plain'"
            )
        return self.rows(length - queries, length).expand(len(asked), -1, -1, -1)  # (H, Tq, Tk) -> (B, H, Tq, Tk)


class Factorised(Random):
    """R = R1 R2^T, both of (N, K); R begins with variance 1."""

    kind = "factorised"

    def __init__(self, heads: int, max_length: int, rank: int = 16, learned: bool = True):
        Score.__init__(self)
        self.max_length = max_length
        self.queries, self.keys = (
            nn.Parameter(torch.randn(heads, max_length, rank) * rank**-0.25, requires_grad=learned) for _ in range(2)
        )

    def rows(self, start: int, end: int) -> Tensor:
        return self.queries[:, start:end] @ self.keys[:, :end].mT  # (H, Tq, K) and (H, K, Tk) -> (H, Tq, Tk)


class Mixture(Score):
    """The sum of several scores. Keys are kept as they are, so that each may project them in its own way."""

    def __init__(self, scores: Sequence[Score]):
        super().__init__()
        self.scores = nn.ModuleList(scores)
        self.length_free = all(score.length_free for score in scores)
        self.needs_all_queries = any(score.needs_all_queries for score in scores)
        self.reads = frozenset[str]().union(*(score.reads for score in scores))

    def match(self, asked: Tensor, keys: Tensor) -> Tensor:
        return self.join([score(asked, keys) for score in self.scores])

    def join(self, found: Sequence[Tensor]) -> Tensor:
        """Several (B, H, Tq, Tk) -> one."""
        return reduce(torch.add, found)


class Gated(Mixture):
    """sum_i g_i s_i, g = softmax(a), a begins as 0. Of two scores the second has the share sigmoid(a_2 - a_1)."""

    def __init__(self, scores: Sequence[Score]):
        super().__init__(scores)
        self.gate = nn.Parameter(torch.zeros(len(scores)))

    def join(self, found: Sequence[Tensor]) -> Tensor:
        return super().join([share * each for share, each in zip(self.gate.softmax(0), found, strict=True)])


class DenseConfig(ScoreConfig):
    """W relu(q), one row for each place of a key; `factorised`: the products of two such of sqrt(limit) rows."""

    kind: Literal["dense"] = "dense"
    max_length: int = Field(512, ge=1)
    factorised: bool = False

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return (FactorisedDense if self.factorised else Dense)(width_q, heads, self.max_length)


class RandomConfig(ScoreConfig):
    """A number for each place of a query and of a key, learned or left as it was drawn."""

    kind: Literal["random"] = "random"
    max_length: int = Field(512, ge=1)
    learned: bool = True

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return Random(heads, self.max_length, self.learned)


class FactorisedConfig(ScoreConfig):
    """The same in two factors of `rank` columns."""

    kind: Literal["factorised"] = "factorised"
    max_length: int = Field(512, ge=1)
    rank: int = Field(16, ge=1)
    learned: bool = True

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return Factorised(heads, self.max_length, self.rank, self.learned)


class MixtureConfig(ScoreConfig):
    """The sum of several scores; `gated`: with shares that are learned."""

    kind: Literal["mixture"] = "mixture"
    scores: tuple[AnyScore, ...] = Field((ScaledConfig(), RandomConfig()), min_length=1)
    gated: bool = False

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return (Gated if self.gated else Mixture)([score.build(width_q, width_k, heads) for score in self.scores])
