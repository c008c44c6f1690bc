"""One look of queries at keys: its geometry (`Sight`), the terms that shape it, and all of it (`Look`).

A term may touch a look in five ways, and a kernel asks which:

    turn     queries and keys before they meet (rotary, cosine)                    hook on q and k
    hide     a mask, kept symbolic so that a kernel can lower it to a flag         hook on the scores
    bias     scores to add that do not depend on content (ALiBi, T5, pair bias)    hook on the scores
    edit     the scores themselves (Shaw, DeBERTa, talking heads)                  hook on the scores
    gather   something to add to the mixed values (Shaw's value term)              hook on weights and values
    reweigh  the weights after the softmax (talking heads, hard attention)         hook on weights and values
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headwise.blocks.scores import DOT, Score
from headwise.blocks.stream import NO_SIDE, Place, Side


@dataclass(frozen=True, slots=True)
class Sight:
    """Who looks at whom, without the contents. The last query stands at the last key when `causal` terms apply."""

    queries: int
    keys: int
    query_pos: Tensor | None = None  # (Tq,) or (B, Tq)
    key_pos: Tensor | None = None
    keep: Tensor | None = None  # (B, Tk) True = a key that may be seen
    query_segment: Tensor | None = None
    key_segment: Tensor | None = None
    tree: Tensor | None = None  # (B, T) heads of words, where a text looks at itself

    @property
    def offset(self) -> int:
        """How many keys went before the first query."""
        return self.keys - self.queries

    def leading(self, count: int) -> Sight:
        """The first queries alone."""
        pos, segment = (None if of is None else of[..., :count] for of in (self.query_pos, self.query_segment))
        return replace(self, queries=count, query_pos=pos, query_segment=segment)

    def distance(self) -> Tensor:
        """key position - query position: (Tq, Tk) or (B, Tq, Tk)."""
        assert self.query_pos is not None and self.key_pos is not None
        return self.key_pos.unsqueeze(-2) - self.query_pos.unsqueeze(-1)

    def over_heads(self, table: Tensor) -> Tensor:
        """(Tq, Tk) or (B, Tq, Tk) -> broadcastable with (B, H, Tq, Tk)."""
        return table if table.dim() == 2 else table.unsqueeze(1)


class Term(nn.Module):
    """Shapes a look. A subclass overrides what it touches; the rest stays untouched."""

    touches: ClassVar[frozenset[str]] = frozenset()
    needs_positions: ClassVar[bool] = False
    needs_end: ClassVar[bool] = False  # whether it asks how many keys there are in all, later ones included
    blinds: ClassVar[bool] = True  # whether its mask may hide all keys of a query
    reads: ClassVar[frozenset[str]] = frozenset()  # "queries", "keys": whose contents it reads

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hooks = ("turn", "hide", "bias", "edit", "gather", "reweigh")
        cls.touches = frozenset(hook for hook in hooks if getattr(cls, hook) is not getattr(Term, hook))

    def key(self) -> Any:
        """Equal keys give equal masks and biases, so that layers of one call may share them."""
        return id(self)

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """Queries or keys (B, H, T, D) at `pos`, turned."""
        return x

    def hide(self, sight: Sight) -> Tensor | None:
        """True = hidden, broadcastable with (B, H, Tq, Tk); None hides nothing."""
        return None

    def bias(self, sight: Sight) -> Tensor:
        """Scores to add, broadcastable with (B, H, Tq, Tk)."""
        return torch.zeros(())

    def edit(self, scores: Tensor, look: Look) -> Tensor:
        """The scaled scores (B, H, Tq, Tk), changed."""
        return scores

    def gather(self, weights: Tensor, look: Look) -> Tensor:
        """Something to add to weights @ values: (B, H, Tq, D)."""
        return torch.zeros(())

    def reweigh(self, weights: Tensor, look: Look) -> Tensor:
        """The weights after the softmax, changed."""
        return weights


@dataclass(frozen=True, slots=True)
class Look:
    """Everything a kernel needs: out = softmax(score(q, k) + terms) @ v, where a dot product is scale * q @ k^T."""

    q: Tensor  # (B, H, Tq, D)
    k: Tensor  # (B, H, Tk, D), as the score projected them
    v: Tensor  # (B, H, Tk, D)
    scale: float
    sight: Sight
    terms: tuple[Term, ...] = ()
    dropout: float = 0.0
    shared: dict[Any, Any] = field(default_factory=dict)
    across: bool = False  # queries of one stream at keys of another
    score: Score = DOT
    side: Side = NO_SIDE  # takes what terms report, at `place`
    place: Place = ()

    def touching(self, *hooks: str) -> list[Term]:
        return [term for term in self.terms if not term.touches.isdisjoint(hooks)]

    def hiding(self) -> list[Term]:
        """The terms that hide something here."""
        return self._shared("hiding", self.touching("hide"), self._hiding)

    def hidden(self) -> Tensor | None:
        """All masks as one: True = hidden, broadcastable with (B, H, Tq, Tk). Made once for all layers of a call."""
        return self._shared("hidden", self.touching("hide"), self._hidden)

    def barred(self) -> Tensor | None:
        """All masks as scores to add, -inf where hidden: with a bias for each layer, a sum is cheaper than a fill."""
        return self._shared(f"barred {self.q.dtype}", self.touching("hide"), self._barred)

    def biases(self) -> Tensor | None:
        """All content-free biases summed, or None."""
        return self._shared("biases", self.touching("bias"), self._biases)

    def _hiding(self, terms: list[Term]) -> list[Term]:
        return [term for term in terms if term.hide(self.sight) is not None]

    def _hidden(self, terms: list[Term]) -> Tensor | None:
        masks = [mask for term in terms if (mask := term.hide(self.sight)) is not None]
        return None if not masks else masks[0] if len(masks) == 1 else _any(masks)

    def _barred(self, terms: list[Term]) -> Tensor | None:
        hidden = self._hidden(terms)
        return hidden if hidden is None else self.q.new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))

    def _biases(self, terms: list[Term]) -> Tensor | None:
        return sum((term.bias(self.sight) for term in terms), torch.zeros((), device=self.q.device)) if terms else None

    def _shared(self, what: str, terms: list[Term], make: Any) -> Any:
        # The ids stay valid as keys because the entry keeps the sight, and so its tensors, alive.
        sight = self.sight
        places = (sight.keep, sight.query_pos, sight.key_pos, sight.query_segment, sight.key_segment)
        key = (what, sight.queries, sight.keys, *map(id, places), *(term.key() for term in terms))
        if key not in self.shared:
            self.shared[key] = (make(terms), sight)
        return self.shared[key][0]


@dataclass(frozen=True, slots=True)
class Implied:
    """What a mixer without a softmax over all keys amounts to: its map, and the look of exact attention at the same
    queries and keys, where it has some. Both are made only if somebody looks."""

    weights: Callable[[], Tensor]  # (B, H, Tq, Tk)
    exact: Callable[[], Look] | None = None
    across: bool = False


def _any(masks: list[Tensor]) -> Tensor:
    first, *others = masks
    for mask in others:
        first = first | mask
    return first
