"""Alignment scores of a query and a key, beside the scaled dot product.

Additive: Bahdanau et al. 2015; dot, general, concat and location: Luong et al. 2015; cosine: Graves et al. 2014
(Neural Turing Machine), bounded: Liu et al. 2022; scaled: Vaswani et al. 2017. Each head has its own weights.

Letters: B rows, H heads, Tq queries, Tk keys, D head_width, A hidden width of the additive score.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import Dot, Scaled, Score
from headwise.config.base import Config
from headwise.errors import UserError


class General(Score):
    """Luong's general score: q W k"""

    by_head = True

    def __init__(self, width_q: int, width_k: int, heads: int):
        super().__init__()
        self.weight = init_head_matrices(heads, width_k, width_q)

    def project_key(self, k: Tensor) -> Tensor:
        return project_heads(k, self.weight)  # (B, H, Tk, Dk) -> (B, H, Tk, Dq)


class Cosine(Score):
    """Cosine similarity: beta * cos(q, k). DISCREPANCY: a Neural Turing Machine emits beta at each step; here each head
    has one."""

    def __init__(self, heads: int, beta: float = 1.0, learned: bool = True):
        super().__init__()
        self.beta = nn.Parameter(torch.full((heads, 1, 1), float(beta)), requires_grad=learned)

    def project_query(self, q: Tensor) -> Tensor:
        return self.beta * F.normalize(q, dim=-1)

    def project_key(self, k: Tensor) -> Tensor:
        return F.normalize(k, dim=-1)


class BoundedCosine(Score):
    """Scaled cosine attention of Swin V2: exp(min(s, ln 100)) cos(q, k) with one s for each head, so that scores stay
    bounded (Liu et al. 2022, equation 2, where 1/exp(s) is called tau)."""

    def __init__(self, heads: int, initial: float = 10.0, most: float = 100.0):
        super().__init__()
        self.log_factor = nn.Parameter(torch.full((heads, 1, 1), math.log(initial)))
        self.most = math.log(most)

    def project_query(self, q: Tensor) -> Tensor:
        return self.log_factor.clamp(max=self.most).exp() * F.normalize(q, dim=-1)

    def project_key(self, k: Tensor) -> Tensor:
        return F.normalize(k, dim=-1)


class Additive(Score):
    """The score of additive attention (Bahdanau et al. 2015): v tanh(W q + U k), which is Luong's concat v tanh(W [q;
    k]) with W cut in two."""

    by_head = True

    def __init__(self, width_q: int, width_k: int, heads: int, hidden: int):
        super().__init__()
        self.query = init_head_matrices(heads, width_q, hidden)
        self.key = init_head_matrices(heads, width_k, hidden)
        self.out = init_head_matrices(heads, hidden, 1)

    def project_query(self, q: Tensor) -> Tensor:
        return project_heads(q, self.query)  # (B, H, Tq, D) -> (B, H, Tq, A)

    def project_key(self, k: Tensor) -> Tensor:
        return project_heads(k, self.key)  # (B, H, Tk, D) -> (B, H, Tk, A)

    def compute_scores(self, q: Tensor, k: Tensor) -> Tensor:
        hidden = (q.unsqueeze(3) + k.unsqueeze(2)).tanh()  # (B, H, Tq, Tk, A)
        return torch.einsum("bhqka,ha->bhqk", hidden, self.out.squeeze(-1))


class Location(Score):
    """Luong's location score: row j of W q for the key at position j, whatever the key is; for up to `max_length`
    keys."""

    length_free = False
    kind: ClassVar[str] = "location"
    reads = frozenset(("queries",))

    def __init__(self, width_q: int, heads: int, max_length: int):
        super().__init__()
        self.max_length = max_length
        self.weight = init_head_matrices(heads, width_q, max_length)

    def project_query(self, q: Tensor) -> Tensor:
        return project_heads(q, self.weight)  # (B, H, Tq, D) -> (B, H, Tq, max_length)

    def compute_scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q[..., : count_keys(k, self.max_length, self.kind)]


def count_keys(k: Tensor, max_length: int, kind: str) -> int:
    """The number of keys; refuse more than `max_length`."""
    length = k.shape[2]
    if length > max_length:
        raise UserError(f"score: '{kind}' has {max_length} positions, too few for {length} keys; raise its max_length")
    return length


def project_heads(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply the vectors of each head (B, H, T, D) by its matrix (H, D, E). A broadcast product computes a gradient
    of the matrix for every row before it sums them; einsum trains Bahdanau's model 1.5 times as fast."""
    return torch.einsum("bhtd,hde->bhte", x, weight)


def init_head_matrices(heads: int, inputs: int, outputs: int) -> nn.Parameter:
    """A matrix for each head, initialised as nn.Linear does: (H, inputs, outputs)."""
    bound = inputs**-0.5
    return nn.Parameter(torch.empty(heads, inputs, outputs).uniform_(-bound, bound))


class ScoreConfig(Config):
    """The score of a query and a key: `build(width_q, width_k, heads) -> Score`, with the widths of one head."""

    kind: str

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the score")

    def check_widths(self, width_q: int, width_k: int) -> int:
        """The width of queries and keys, which must be the same."""
        if width_q != width_k:
            raise UserError(
                f"score: '{self.kind}' needs queries and keys of one width, not {width_q} and {width_k}; use 'general'"
            )
        return width_q


class ScaledConfig(ScoreConfig):
    """q k / sqrt(D)"""

    kind: Literal["scaled"] = "scaled"

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return Scaled(self.check_widths(width_q, width_k))


class DotConfig(ScoreConfig):
    """q k"""

    kind: Literal["dot"] = "dot"

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        self.check_widths(width_q, width_k)
        return Dot()


class GeneralConfig(ScoreConfig):
    """q W k"""

    kind: Literal["general"] = "general"

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return General(width_q, width_k, heads)


class AdditiveConfig(ScoreConfig):
    """v tanh(W q + U k), each head with `hidden` channels; 0: as many as a query has"""

    kind: Literal["additive"] = "additive"
    hidden: int = Field(0, ge=0)

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return Additive(width_q, width_k, heads, self.hidden or width_q)


class CosineConfig(ScoreConfig):
    """beta cos(q, k)"""

    kind: Literal["cosine"] = "cosine"
    beta: float = Field(1.0, gt=0)
    learned: bool = True

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        self.check_widths(width_q, width_k)
        return Cosine(heads, self.beta, self.learned)


class BoundedCosineConfig(ScoreConfig):
    """cos(q, k) times a learned factor of each head, at most `most`"""

    kind: Literal["bounded_cosine"] = "bounded_cosine"
    initial: float = Field(10.0, gt=0)
    most: float = Field(100.0, gt=0)

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        self.check_widths(width_q, width_k)
        return BoundedCosine(heads, self.initial, self.most)


class LocationConfig(ScoreConfig):
    """W q, one row for each position of a key; keys are not read"""

    kind: Literal["location"] = "location"
    max_length: int = Field(256, ge=1)

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        return Location(width_q, heads, self.max_length)
