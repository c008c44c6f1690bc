"""Inputs of an attention kernel: queries, keys and values, their layout (positions, masks) and the score mods.

A score mod (`ScoreMod`; FlexAttention calls these score_mod and mask_mod) changes attention at up to six hooks:

    rotate        queries and keys before they are compared (rotary position embedding)
    mask          an attention mask, kept symbolic so that a kernel can lower it to a flag (causal, padding, window)
    bias          an additive attention bias that does not depend on content (ALiBi, T5 buckets, pair bias)
    edit_scores   the score matrix itself (Shaw, DeBERTa, talking heads)
    edit_weights  the weights after the softmax (talking heads, hard attention)
    add_values    a term added to weights @ values (Shaw's relative values)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headwise.blocks.attention.scores import DOT, Score
from headwise.blocks.stream import NO_SIDE, LayerPath, SideOutputs


@dataclass(frozen=True, slots=True)
class AttentionLayout:
    """Lengths, positions and masks of queries and keys, without their contents. Under a causal mask the last query is
    at the position of the last key."""

    queries: int
    keys: int
    query_pos: Tensor | None = None  # (Tq,) or (B, Tq)
    key_pos: Tensor | None = None
    keep: Tensor | None = None  # (B, Tk) True = real key
    query_segment: Tensor | None = None
    key_segment: Tensor | None = None
    tree: Tensor | None = None  # (B, T) heads of words in a dependency tree, in self-attention

    @property
    def offset(self) -> int:
        """How many keys precede the first query."""
        return self.keys - self.queries

    def take_first(self, count: int) -> AttentionLayout:
        """The layout of the first `count` queries."""
        pos, segment = (None if of is None else of[..., :count] for of in (self.query_pos, self.query_segment))
        return replace(self, queries=count, query_pos=pos, query_segment=segment)

    def distance(self) -> Tensor:
        """key position - query position: (Tq, Tk) or (B, Tq, Tk)."""
        assert self.query_pos is not None and self.key_pos is not None
        return self.key_pos.unsqueeze(-2) - self.query_pos.unsqueeze(-1)

    def expand_heads(self, table: Tensor) -> Tensor:
        """(Tq, Tk) or (B, Tq, Tk) -> broadcastable with (B, H, Tq, Tk)."""
        return table if table.dim() == 2 else table.unsqueeze(1)


class ScoreMod(nn.Module):
    """A score mod: an attention mask, an additive bias, or another change of scores, weights or values. A subclass
    overrides hooks; `hooks` is derived from that, so that a kernel knows what it must support."""

    hooks: ClassVar[frozenset[str]] = frozenset()
    needs_positions: ClassVar[bool] = False
    needs_key_count: ClassVar[bool] = False  # whether it needs the number of all keys, later ones included
    may_mask_all: ClassVar[bool] = True  # whether its mask may mask every key of a query
    reads: ClassVar[frozenset[str]] = frozenset()  # of "queries" and "keys", whose contents it reads
    causal: bool = False  # whether its mask masks all later keys
    masks_past: ClassVar[bool] = False  # whether its mask may mask earlier real keys of the same text

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hooks = ("rotate", "mask", "bias", "edit_scores", "add_values", "edit_weights")
        cls.hooks = frozenset(hook for hook in hooks if getattr(cls, hook) is not getattr(ScoreMod, hook))
        if "mask" in vars(cls):  # another mask than the base's: nothing is known of it but what the class itself says
            cls.causal = vars(cls).get("causal", False)
            cls.masks_past = vars(cls).get("masks_past", True)

    def key(self) -> Any:
        """Mods with equal keys give equal masks and biases, which the layers of one call then share."""
        return id(self)

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        """Rotate queries or keys (B, H, T, D) at positions `pos`."""
        return x

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        """The attention mask, True = masked, broadcastable with (B, H, Tq, Tk); None masks nothing."""
        return None

    def bias(self, layout: AttentionLayout) -> Tensor:
        """The additive attention bias, broadcastable with (B, H, Tq, Tk)."""
        return torch.zeros(())

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        """Change the scaled scores (B, H, Tq, Tk)."""
        return scores

    def add_values(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        """A term to add to weights @ values: (B, H, Tq, D)."""
        return torch.zeros(())

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        """Change the weights after the softmax."""
        return weights


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """All inputs of an attention kernel: out = softmax(score(q, k) + bias + mask) @ v, with score = scale * q @ k^T
    unless another is given."""

    q: Tensor  # (B, H, Tq, D)
    k: Tensor  # (B, H, Tk, D), as the score projected them
    v: Tensor  # (B, H, Tk, D)
    scale: float
    layout: AttentionLayout
    score_mods: tuple[ScoreMod, ...] = ()
    dropout: float = 0.0
    shared: dict[Any, Any] = field(default_factory=dict)
    is_cross: bool = False  # cross-attention
    score: Score = DOT
    side: SideOutputs = NO_SIDE  # collects what score mods report, under `path`
    path: LayerPath = ()

    def mods_with(self, *hooks: str) -> list[ScoreMod]:
        return [mod for mod in self.score_mods if not mod.hooks.isdisjoint(hooks)]

    def masking_mods(self) -> list[ScoreMod]:
        """The score mods whose mask masks something here."""
        return self._shared("masking mods", self.mods_with("mask"), self._masking)

    def mask(self) -> Tensor | None:
        """The attention mask of all mods: True = masked, broadcastable with (B, H, Tq, Tk). Built once for all layers
        of a call."""
        return self._shared("mask", self.mods_with("mask"), self._build_mask)

    def additive_mask(self) -> Tensor | None:
        """The attention mask as scores to add, -inf where masked: with a bias in each layer, a sum is cheaper than a
        fill."""
        return self._shared(f"additive mask {self.q.dtype}", self.mods_with("mask"), self._build_additive_mask)

    def bias(self) -> Tensor | None:
        """The sum of all additive attention biases, or None."""
        return self._shared("bias", self.mods_with("bias"), self._sum_biases)

    def _masking(self, score_mods: list[ScoreMod]) -> list[ScoreMod]:
        return [mod for mod in score_mods if mod.mask(self.layout) is not None]

    def _build_mask(self, score_mods: list[ScoreMod]) -> Tensor | None:
        masks = [mask for mod in score_mods if (mask := mod.mask(self.layout)) is not None]
        return None if not masks else masks[0] if len(masks) == 1 else _any(masks)

    def _build_additive_mask(self, score_mods: list[ScoreMod]) -> Tensor | None:
        mask = self._build_mask(score_mods)
        return mask if mask is None else self.q.new_zeros(mask.shape).masked_fill_(mask, float("-inf"))

    def _sum_biases(self, score_mods: list[ScoreMod]) -> Tensor | None:
        return (
            sum((mod.bias(self.layout) for mod in score_mods), torch.zeros((), device=self.q.device))
            if score_mods
            else None
        )

    def _shared(self, what: str, score_mods: list[ScoreMod], make: Any) -> Any:
        # The ids stay valid as keys because the entry keeps the layout, and so its tensors, alive.
        layout = self.layout
        places = (layout.keep, layout.query_pos, layout.key_pos, layout.query_segment, layout.key_segment)
        key = (what, layout.queries, layout.keys, *map(id, places), *(mod.key() for mod in score_mods))
        if key not in self.shared:
            self.shared[key] = (make(score_mods), layout)
        return self.shared[key][0]


@dataclass(frozen=True, slots=True)
class ApproximateMap:
    """The attention map that a mixer without a softmax over all keys implies, and the inputs of exact attention for the
    same queries and keys, where it has some. Both are computed only if somebody records them."""

    weights: Callable[[], Tensor]  # (B, H, Tq, Tk)
    exact: Callable[[], AttentionInputs] | None = None
    is_cross: bool = False


def _any(masks: list[Tensor]) -> Tensor:
    first, *others = masks
    for mask in others:
        first = first | mask
    return first
