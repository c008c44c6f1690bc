"""The one softmax attention: projections + what it sees + score + terms + kernel (B3-B6; Vaswani et al. 2017).

Letters: B rows, T length, C width, H heads, D head_width, K beams of one source.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headwise.blocks.kernels import kernel_named
from headwise.blocks.look import Look, Sight, Term
from headwise.blocks.part import Part, Properties
from headwise.blocks.scores import BOTH, Scaled, Score
from headwise.blocks.stream import Context, Stream
from headwise.blocks.terms import ALWAYS, Causal
from headwise.errors import UserError

Seen = tuple[Tensor, Tensor, Tensor, Sight]


class Itself(nn.Module):
    """Queries, keys and values from the stream itself, in one product."""

    roles: tuple[str, ...] = ("queries", "keys", "values")  # what the rows of the product make

    def __init__(self, width: int, heads: int, head_width: int, bias: bool = True):
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.project = nn.Linear(width, sum(self.rows), bias)

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows of the product belong to each role."""
        return (self.heads * self.head_width,) * len(self.roles)

    def forward(self, stream: Stream, ctx: Context, terms: Sequence[Term], score: Score) -> Seen:
        q, k, v = self.split(self.project(stream.x))
        for term in terms:
            if "turn" in term.touches:  # before caching, so that a key is turned once
                q, k = (term.turn(x, stream.pos) if x.shape[-1] else x for x in (q, k))
        kept = score.project(self.spread(k) if score.by_head else k)
        k, v = ctx.cache.extend(ctx.place, 2, kept, v)
        sight = self._sight(stream, ctx, k.shape[2], any(term.needs_positions for term in terms))
        return q, self.spread(k), self.spread(v), sight

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (B, H, T, D)."""
        # (B, T, 3HD) -> (B, T, 3, H, D) -> 3 x (B, H, T, D); unbound first, their gradients are joined in one copy
        parts = fused.view(*fused.shape[:2], 3, self.heads, self.head_width).unbind(2)
        return tuple(part.transpose(1, 2) for part in parts)

    def spread(self, x: Tensor) -> Tensor:
        """Keys or values as they are kept -> for each head of the queries."""
        return x

    def _sight(self, stream: Stream, ctx: Context, keys: int, positions: bool) -> Sight:
        """The geometry of all keys so far; only what somebody needs is remembered."""
        pos, keep, segment = stream.pos, stream.keep, stream.segment
        if positions:
            (pos,) = ctx.cache.extend((*ctx.place, "pos"), pos.dim() - 1, pos)
        if keep is not None:
            (keep,) = ctx.cache.extend((*ctx.place, "keep"), 1, keep)
        if segment is not None:
            (segment,) = ctx.cache.extend((*ctx.place, "segment"), segment.dim() - 1, segment)
        return Sight(stream.x.shape[1], keys, stream.pos, pos, keep, stream.segment, segment, stream.tree)


class Grouped(Itself):
    """Several heads of queries share one of keys and values, so that less is kept while decoding (Ainslie et al. 2023);
    one for all of them is multi-query attention (Shazeer 2019)."""

    def __init__(self, width: int, heads: int, head_width: int, bias: bool = True, key_value_heads: int = 1):
        if heads % key_value_heads:
            raise UserError(
                f"key_value_heads: {heads} heads cannot share {key_value_heads} heads of keys; choose a divisor"
            )
        self.key_value_heads = key_value_heads
        super().__init__(width, heads, head_width, bias)

    @property
    def rows(self) -> tuple[int, ...]:
        heads = {"queries": self.heads, "keys": self.key_value_heads, "values": self.key_value_heads}
        return tuple(heads[role] * self.head_width for role in self.roles)

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        # (B, T, (H + 2G)D) -> (B, T, HD) and 2 x (B, T, GD) -> (B, H, T, D) and 2 x (B, G, T, D)
        return tuple(part.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in fused.split(self.rows, -1))

    def spread(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.heads // x.shape[1], dim=1)  # (B, G, T, D) -> (B, H, T, D)


class BareKeys(Itself):
    """Queries and values have biases, keys none (He et al. 2021)."""

    def __init__(self, width: int, heads: int, head_width: int):
        super().__init__(width, heads, head_width, bias=False)
        self.bias = nn.Parameter(torch.zeros(2 * heads * head_width))  # of all queries, then of all values

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().split(fused)
        of_q, of_v = self.bias.view(2, self.heads, 1, self.head_width)  # (2HD,) -> 2 x (H, 1, D)
        return q + of_q, k, v + of_v


class SelectedProjections(Grouped):
    """Values, and of queries and keys those that a score or a term reads. The others have no channels: they tell how
    many tokens there are (Tay et al. 2020)."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        bias: bool = True,
        key_value_heads: int = 1,
        reads: Collection[str] = (),
    ):
        self.roles = tuple(role for role in Itself.roles if role == "values" or role in reads)
        super().__init__(width, heads, head_width, bias, key_value_heads)

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        made = dict(zip(self.roles, super().split(fused), strict=True))
        none = made["values"][..., :0]  # (B, G, T, 0)
        return made.get("queries", self.spread(none)), made.get("keys", none), made["values"]


def read_by(score: Score, terms: Sequence[Term]) -> frozenset[str]:
    """Whether anybody reads queries, keys, or both."""
    return score.reads.union(*(term.reads for term in terms))


class Recalling(Itself):
    """Keys and values also of what the segments before left, `recall` tokens of each row, with the weights of today
    (Dai et al. 2019, section 3.2)."""

    def __init__(self, width: int, heads: int, head_width: int, bias: bool = True, recall: int = 1):
        super().__init__(width, heads, head_width, bias)
        self.recall = recall

    def forward(self, stream: Stream, ctx: Context, terms: Sequence[Term], score: Score) -> Seen:
        length = stream.x.shape[1]
        q, k, v, sight = super().forward(ctx.cache.carry(ctx.place, stream), ctx, terms, score)
        return q[:, :, -length:], k, v, replace(sight, queries=length, query_pos=stream.pos)


class Memory(nn.Module):
    """Queries from the stream, keys and values from a stream in the context's memory, projected once per source."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        bias: bool = True,
        memory_width: int = 0,
        name: str = "encoder",
        reads: Collection[str] = BOTH,
    ):
        super().__init__()
        self.heads, self.head_width, self.name = heads, head_width, name
        self.roles = ("keys", "values") if "keys" in reads else ("values",)  # what the rows of the product make
        self.query = nn.Linear(width, heads * head_width, bias)
        self.project = nn.Linear(memory_width or width, len(self.roles) * heads * head_width, bias)

    def forward(self, stream: Stream, ctx: Context, terms: Sequence[Term], score: Score) -> Seen:
        memory = ctx.memory[self.name]
        k, v = ctx.cache.once(ctx.place, lambda: self.keys_values(memory, terms, score))
        # Beams of one source are contiguous rows: as further queries they share its keys and values.
        # (B*K, T, C) -> (B, K*T, H, D) -> (B, H, K*T, D)
        q = self.query(stream.x).view(len(k), -1, self.heads, self.head_width).transpose(1, 2)
        for term in terms:
            if "turn" in term.touches:
                q = term.turn(q, folded(stream.pos, q.shape[2]))
        # None where nobody asks, so that all layers of a step share one mask.
        pos = folded(stream.pos, q.shape[2]) if any(term.needs_positions for term in terms) else None
        return q, k, v, Sight(q.shape[2], k.shape[2], pos, memory.pos, memory.keep)

    def keys_values(self, memory: Stream, terms: Sequence[Term], score: Score) -> tuple[Tensor, Tensor]:
        """What the queries look at, the keys as the score projects them: 2 x (B, H, S, D)."""
        rows, length, _ = memory.x.shape
        # (B, S, C) -> (B, S, 2, H, D) -> 2 x (B, H, S, D)
        fused = self.project(memory.x).view(rows, length, len(self.roles), self.heads, self.head_width)
        *keys, v = (part.transpose(1, 2) for part in fused.unbind(2))
        k = keys[0] if keys else v[..., :0]
        for term in terms:
            if "turn" in term.touches and keys:
                k = term.turn(k, memory.pos)
        return score.project(k), v


def folded(pos: Tensor, queries: int) -> Tensor:
    """Positions of the beams' queries in a row: (T,) -> (K*T,) or (B*K, T) -> (B, K*T)."""
    if pos.shape[-1] == queries:
        return pos
    return pos.repeat(queries // len(pos)) if pos.dim() == 1 else pos.reshape(-1, queries)


class Attention(Part):
    """softmax(score(Q, K) + terms) V in several heads, then one output projection; the score is Q K^T / sqrt(D)
    unless another is given.

    >>> import torch
    >>> Attention(64, heads=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        see: nn.Module | None = None,
        head_width: int = 0,
        score: Score | None = None,
        terms: Sequence[Term] = (),
        kernel: str = "auto",
        dropout: float = 0.0,
        bias: bool = True,
        scale: float = 0.0,
    ):
        super().__init__()
        if not head_width and width % heads:
            raise UserError(f"heads: a width of {width} cannot be divided among {heads} heads; choose a divisor")
        head_width = head_width or width // heads
        self.see = see if see is not None else Itself(width, heads, head_width, bias)
        self.terms = nn.ModuleList(terms)
        self.out = nn.Linear(heads * head_width, width, bias)
        self.score = score if score is not None else Scaled(head_width)
        self.scale = scale or self.score.scale
        self.dropout = dropout
        self.kernel = kernel_named(kernel)
        self.all_terms: tuple[Term, ...] = (*terms, *ALWAYS)

    @property
    def properties(self) -> Properties:
        masked = any(isinstance(term, Causal) for term in self.terms)
        causal = isinstance(self.see, Memory) or (masked and not any(term.needs_end for term in self.all_terms))
        return Properties(causal=causal, steppable=causal, length_free=self.score.length_free)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        q, k, v, sight = self.see(stream, ctx, self.all_terms, self.score)
        if ctx.asked is not None and self._looks_alone():
            q, sight = q[:, :, : ctx.asked], sight.leading(ctx.asked)
        dropout = self.dropout if self.training else 0.0
        across = isinstance(self.see, Memory)
        look = Look(
            q, k, v, self.scale, sight, self.all_terms, dropout, ctx.shared, across, self.score, ctx.side, ctx.place
        )
        look = ctx.record.before(ctx.place, look)
        ctx.record.look(ctx.place, look)
        mixed = ctx.record.heads(ctx.place, self.kernel(look)).transpose(1, 2)  # (B, H, Tq, D) -> (B, Tq, H, D)
        return self.out(mixed.reshape(len(stream.x), -1, mixed.shape[2] * mixed.shape[3]))

    def _looks_alone(self) -> bool:
        """Whether a query's look is the same without the queries after it: so it is where nothing but padding and
        positions that turn shapes it."""
        return isinstance(self.see, Itself) and all(
            term in ALWAYS or term.touches <= {"turn"} for term in self.all_terms
        )
