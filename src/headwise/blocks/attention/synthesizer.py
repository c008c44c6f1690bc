"""Synthesizer (Tay et al. 2020, "Synthesizer: Rethinking Self-Attention in Transformer Models"): scores that do not
compare tokens, and their mixtures with scores that do, as Narang et al. (2021) measured them in T5:

    dense                           W relu(q)
    mixture of scaled and dense     q k / sqrt(D) + W relu(q)
    the same, gated                 (1 - g) q k / sqrt(D) + g W relu(q), where g = sigmoid(a) and a begins as 0
    factorised                      R1 R2^T of rank 16
    random                          R of (N, H, N)
    mixture of scaled and random    q k / sqrt(D) + R
    the same, gated                 (1 - g) q k / sqrt(D) + g R

Masks, relative biases and the sum of values are those of any attention. Keys are identified by their positions in a
row, so a row may have at most N tokens, and positions do not start again in packed documents.

A score says what it `reads`, and self-attention projects nothing else: the dense form has no keys, the factorised and
random ones have neither keys nor queries (Tay et al., section 3: Y = softmax(R) G(X)).

DISCREPANCY: in the released code of the factorised form both factors run over the keys, so that all queries have the
same weights; here R1 runs over the queries, as in the paper.

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
from headwise.blocks.attention.scores import Location, ScaledConfig, ScoreConfig, count_keys
from headwise.blocks.tables import AnyScore
from headwise.errors import UserError


class Dense(Location):
    """The dense Synthesizer: row j of W2 relu(W1 x) for the key at position j; W1 is the projection of queries, as in
    the released code."""

    kind = "dense"

    def project_query(self, q: Tensor) -> Tensor:
        return super().project_query(q.relu())  # (B, H, Tq, D) -> (B, H, Tq, N)


class FactorisedDense(Dense):
    """The factorised dense Synthesizer: position j = b n + c has the product of row b of one small dense score and row
    c of another, n = ceil(sqrt(N))."""

    def __init__(self, width_q: int, heads: int, max_length: int):
        super().__init__(width_q, heads, 2 * math.isqrt(max_length - 1) + 2)  # both in one product
        self.max_length = max_length

    def project_query(self, q: Tensor) -> Tensor:
        outer, inner = super().project_query(q).chunk(2, dim=-1)  # 2 x (B, H, Tq, n)
        return (outer.unsqueeze(-1) * inner.unsqueeze(-2)).flatten(-2)  # (B, H, Tq, n, n) -> (B, H, Tq, n^2)


class Random(Score):
    """The random Synthesizer: R_ij for the query at position i and the key at position j, whatever they are; R begins
    as N(0, 1). For self-attention, where the last query is at the position of the last key."""

    length_free = False
    needs_all_queries = True
    kind: ClassVar[str] = "random"
    reads = frozenset()

    def __init__(self, heads: int, max_length: int, learned: bool = True):
        super().__init__()
        self.max_length = max_length
        self.table = nn.Parameter(torch.randn(heads, max_length, max_length), requires_grad=learned)

    def get_scores(self, start: int, end: int) -> Tensor:
        """The scores of the queries at `start` ... `end` - 1 and the first `end` keys: (H, Tq, Tk)."""
        return self.table[:, start:end, :end]

    def project_query(self, q: Tensor) -> Tensor:
        return q[..., :0]  # only their number is read

    def compute_scores(self, q: Tensor, k: Tensor) -> Tensor:
        queries, length = q.shape[2], count_keys(k, self.max_length, self.kind)
        if queries not in (1, length):  # chunks of queries, or queries of another text, have unknown positions
            raise UserError(
                f"score: '{self.kind}' needs all queries of a text at once, not {queries} of {length}; "
                "use it with attend_to = 'self' and kernel = 'plain'"
            )
        return self.get_scores(length - queries, length).expand(q.shape[0], -1, -1, -1)  # (H, Tq, Tk) -> (B, H, Tq, Tk)


class Factorised(Random):
    """The factorised random Synthesizer: R = R1 R2^T, both of (N, K); R begins with variance 1."""

    kind = "factorised"

    def __init__(self, heads: int, max_length: int, rank: int = 16, learned: bool = True):
        Score.__init__(self)
        self.max_length = max_length
        self.queries, self.keys = (
            nn.Parameter(torch.randn(heads, max_length, rank) * rank**-0.25, requires_grad=learned) for _ in range(2)
        )

    def get_scores(self, start: int, end: int) -> Tensor:
        return self.queries[:, start:end] @ self.keys[:, :end].mT  # (H, Tq, K) and (H, K, Tk) -> (H, Tq, Tk)


class Mixture(Score):
    """The sum of several scores. The KV cache stores keys without projection, since each score has its own."""

    def __init__(self, scores: Sequence[Score]):
        super().__init__()
        self.scores = nn.ModuleList(scores)
        self.length_free = all(score.length_free for score in scores)
        self.needs_all_queries = any(score.needs_all_queries for score in scores)
        self.reads = frozenset[str]().union(*(score.reads for score in scores))

    def compute_scores(self, q: Tensor, k: Tensor) -> Tensor:
        return self.combine([score(q, k) for score in self.scores])

    def combine(self, scores: Sequence[Tensor]) -> Tensor:
        """Sum scores, (B, H, Tq, Tk) each."""
        return reduce(torch.add, scores)


class Gated(Mixture):
    """A gated sum of scores: sum_i g_i s_i, g = softmax(a), a begins as 0. Of two scores the second has the weight
    sigmoid(a_2 - a_1)."""

    def __init__(self, scores: Sequence[Score]):
        super().__init__(scores)
        self.gate = nn.Parameter(torch.zeros(len(scores)))

    def combine(self, scores: Sequence[Tensor]) -> Tensor:
        gates = self.gate.softmax(0)
        return super().combine([gate * score for gate, score in zip(gates, scores, strict=True)])


class DenseConfig(ScoreConfig):
    """W relu(q), one row for each position of a key; `factorised`: products of two such of sqrt(max_length) rows"""

    kind: Literal["dense"] = "dense"
    max_length: int = Field(512, ge=1)
    factorised: bool = False

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return (FactorisedDense if self.factorised else Dense)(width_q, heads, self.max_length)


class RandomConfig(ScoreConfig):
    """A score for each pair of positions, learned or left as initialised"""

    kind: Literal["random"] = "random"
    max_length: int = Field(512, ge=1)
    learned: bool = True

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return Random(heads, self.max_length, self.learned)


class FactorisedConfig(ScoreConfig):
    """The random score in two factors of `rank` columns"""

    kind: Literal["factorised"] = "factorised"
    max_length: int = Field(512, ge=1)
    rank: int = Field(16, ge=1)
    learned: bool = True

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return Factorised(heads, self.max_length, self.rank, self.learned)


class MixtureConfig(ScoreConfig):
    """The sum of several scores; `gated`: with learned weights"""

    kind: Literal["mixture"] = "mixture"
    scores: tuple[AnyScore, ...] = Field((ScaledConfig(), RandomConfig()), min_length=1)
    gated: bool = False

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return (Gated if self.gated else Mixture)([score.build(width_q, width_k, heads) for score in self.scores])
