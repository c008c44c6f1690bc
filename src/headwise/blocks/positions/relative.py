"""Score mods with learned vectors of distances: DeBERTa's and Transformer-XL's.

Letters: B rows, H heads, D head_width, C width, Tq queries, Tk keys, N distances.

Both take tokens of one sequence, of which no two are further apart than there are keys.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.blocks.attention.inputs import AttentionInputs, ScoreMod
from headwise.blocks.attention.scores import BOTH
from headwise.blocks.dropout import make_dropout
from headwise.blocks.positions.absolute import build_sinusoids


def places(inputs: AttentionInputs, before: int, count: int) -> Tensor:
    """Where the distance i - j of each query and key stands among `count`, of which `before` are negative:
    (B, H, Tq, Tk). One that is not among them takes the nearest."""
    where = (before - inputs.layout.distance()).clamp(0, count - 1)
    return inputs.layout.expand_heads(where).expand(*inputs.q.shape[:2], -1, -1)


class DisentangledAttention(ScoreMod):
    """e_ij = (q_i k_j + q_i Kr[d] + k_j Qr[d]) / sqrt(3 D) with d = clip(i - j + k, 0, 2k - 1): content to content,
    content to place, place to content (He et al. 2021, equation 4). Kr and Qr are made of one table of distances, which
    all layers share.

    DISCREPANCY: the paper prints d(j, i) in the last part; both released implementations use d(i, j), and so do we.
    """

    needs_positions = True
    reads = BOTH

    def __init__(self, table: nn.Embedding, heads: int, head_width: int, dropout: float = 0.0):
        super().__init__()
        self.table = table  # (2k, C)
        self.heads = heads
        self.keys = nn.Linear(table.embedding_dim, heads * head_width, bias=False)
        self.queries = nn.Linear(table.embedding_dim, heads * head_width)
        self.drop = make_dropout(dropout)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        max_distance = self.table.num_embeddings // 2
        span = min(inputs.layout.keys, max_distance)  # no distance of a short text needs the others
        steps = self.drop(
            self.table(torch.arange(max_distance - span, max_distance + span, device=scores.device))
        )  # (N, C)
        where = places(inputs, span, 2 * span)
        to_place = (inputs.q @ self._split(self.keys(steps))).gather(-1, where)
        from_place = (inputs.k @ self._split(self.queries(steps))).gather(-1, where.mT).mT  # (B, H, Tk, Tq) -> back
        return (scores + inputs.scale * (to_place + from_place)) * 3**-0.5

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).permute(1, 2, 0)  # (N, H * D) -> (H, D, N)


class DistanceSinusoids(nn.Module):
    """Sinusoids of the distances 0, 1, 2 ... to earlier tokens, and `both_ways` of the negative ones to later tokens
    before them. Nothing to learn, any length."""

    def __init__(self, width: int, both_ways: bool, ready: int = 512):
        super().__init__()
        self.width, self.both_ways, self.ready = width, both_ways, ready
        self.register_buffer("table", self._made(ready), persistent=False)  # a store of the first, not a limit
        self.table: Tensor

    def forward(self, max_distance: int) -> Tensor:
        """Of all distances up to `max_distance`, from the smallest on: (N, C)."""
        if max_distance > self.ready:
            return self._made(max_distance, self.table.device).to(self.table.dtype)
        middle = self.ready if self.both_ways else 0
        return self.table[middle - self.negative(max_distance) : middle + max_distance + 1]

    def negative(self, max_distance: int) -> int:
        """How many distances stand before 0."""
        return max_distance if self.both_ways else 0

    def _made(self, max_distance: int, device: torch.device | None = None) -> Tensor:
        distances = torch.arange(-self.negative(max_distance), max_distance + 1, device=device)
        return build_sinusoids(distances, self.width, halves=True).to(torch.get_default_dtype())


class ContentBiases(nn.Module):
    """What every query leans to, whatever it is: towards some contents and towards some distances."""

    def __init__(self, heads: int, head_width: int):
        super().__init__()
        self.content = nn.Parameter(torch.randn(heads, 1, head_width) * 0.02)
        self.distance = nn.Parameter(torch.randn(heads, 1, head_width) * 0.02)


class TransformerXLRelative(ScoreMod):
    """e_ij = ((q_i + u) k_j + (q_i + v) W PE(i - j)) / sqrt(D) (Dai et al. 2019, section 3.3). W belongs to a layer, u
    and v to all of them. As in the code released with the paper, all sines of PE stand before the cosines."""

    needs_positions = True
    reads = BOTH

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        distances: DistanceSinusoids,
        leanings: ContentBiases,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.distances, self.leanings = distances, leanings
        self.project = nn.Linear(width, heads * head_width, bias=False)
        self.drop = make_dropout(dropout)

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        max_distance = inputs.layout.keys - 1
        steps = self.drop(self.distances(max_distance))  # (N, C)
        where = places(inputs, self.distances.negative(max_distance), len(steps))
        by_distance = self._by_distance(inputs.q + self.leanings.distance, steps)  # (B, H, Tq, N)
        by_content = self.leanings.content @ inputs.k.mT  # (H, 1, D) and (B, H, D, Tk) -> (B, H, 1, Tk)
        return scores + inputs.scale * (by_content + by_distance.gather(-1, where))

    def _by_distance(self, q: Tensor, steps: Tensor) -> Tensor:
        """(B, H, Tq, D) W PE -> (B, H, Tq, N), in the order that multiplies less: few queries meet W first."""
        rows, heads, queries, head_width = q.shape
        weight = self.project.weight.view(heads, head_width, -1)  # (H * D, C) -> (H, D, C)
        count, width = steps.shape
        queries_first = rows * queries * width * (head_width + count)
        steps_first = count * head_width * (width + rows * queries)
        if queries_first < steps_first:
            return (q @ weight) @ steps.t()
        return q @ (weight @ steps.t())
