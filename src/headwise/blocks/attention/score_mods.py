"""Inputs of an attention kernel: queries, keys and values, their layout (positions, masks), score and score mods.

A score mod (`ScoreMod`; FlexAttention calls these score_mod and mask_mod) changes attention at up to six hooks:

    edit_qk       queries and keys before they are compared: `edit_queries` and `edit_keys` (rotary positions, QK norm)
    mask          an attention mask, kept symbolic so that a kernel can lower it to a flag (causal, padding, window)
    bias          an additive attention bias that does not depend on content (ALiBi, T5 buckets, pair bias)
    edit_scores   the score matrix itself (Shaw, DeBERTa, talking heads)
    edit_weights  the weights after the softmax (talking heads, hard attention)
    add_values    a term added to weights @ values (Shaw's relative values)

Here are the attention masks (causal, sliding window, padding, packed documents) and logit soft-capping; score mods that
are positions (ALiBi, T5, Shaw, rotary) are in `blocks.positions`. The padding mask and the document mask belong to
every attention, and do nothing where a stream has neither; the others are chosen. The default score is the scaled dot
product; others are in `scores.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar, Literal, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.part import BuildContext, ScoreModBuilder
from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.stream import NO_SIDE, LayerPath, SideOutputs, make_hashable
from headwise.config.base import describe_config
from headwise.errors import UserError

QUERIES_AND_KEYS = frozenset(("queries", "keys"))
Shared = TypeVar("Shared")


class Score(nn.Module):
    """The attention score of a query and a key.

    `project_query` and `project_key` are computed once for each query and each key, `compute_scores` for each pair of
    them. A score whose `compute_scores` is the dot product can run in fused kernels.
    """

    scale: float = 1.0  # apart from `project_query`, because fused kernels scale for free
    length_free: bool = True  # whether it takes any number of keys
    needs_all_queries: bool = False  # whether it identifies queries by their index, so that none may be left out
    by_head: ClassVar[bool] = False  # whether each head has its own projection of keys
    reads: frozenset[str] = QUERIES_AND_KEYS  # operands whose contents it uses; the others are not projected

    @property
    def fused(self) -> bool:
        """Whether it is the dot product of projected queries and keys, which fused kernels compute."""
        return type(self).compute_scores is Score.compute_scores

    def project_query(self, q: Tensor) -> Tensor:
        """The operand that `compute_scores` takes of queries (B, H, Tq, D)."""
        return q

    def project_key(self, k: Tensor) -> Tensor:
        """The operand that `compute_scores` takes of keys (B, H, Tk, D); this is what the KV cache stores."""
        return k

    def compute_scores(self, q: Tensor, k: Tensor) -> Tensor:
        """Projected queries and projected keys -> scores (B, H, Tq, Tk)."""
        return q @ k.transpose(-2, -1)

    def score_cached_keys(self, q: Tensor, k: Tensor) -> Tensor:
        """Queries (B, H, Tq, D) and projected keys, as the KV cache stores them -> scores (B, H, Tq, Tk)."""
        return self.compute_scores(self.project_query(q) * self.scale, k)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.score_cached_keys(q, self.project_key(k))


class Dot(Score):
    """The dot product: q k"""


DOT = Dot()


class Scaled(Score):
    """The score of scaled dot-product attention (Vaswani et al. 2017): q k / sqrt(D)"""

    def __init__(self, width: int):
        super().__init__()
        self.scale = width**-0.5


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
    grid: tuple[int, int] | None = None  # rows and columns of patches after the class tokens, in self-attention
    query_types: Tensor | None = None  # (B, Tq) token types, where a score mod compares them
    key_types: Tensor | None = None  # (B, Tk)
    pair: Tensor | None = None  # (P, Tq, Tk, K) vectors of pairs of tokens, in self-attention
    rows_per_pair: int = 1  # B / P rows that follow each other share one

    @property
    def offset(self) -> int:
        """Number of keys before the first query."""
        return self.keys - self.queries

    def take_first(self, count: int) -> AttentionLayout:
        """The layout of the first `count` queries."""
        pos = None if self.query_pos is None else self.query_pos[..., :count]
        segment = None if self.query_segment is None else self.query_segment[..., :count]
        types = None if self.query_types is None else self.query_types[:, :count]
        pair = None if self.pair is None else self.pair[:, :count]
        return replace(self, queries=count, query_pos=pos, query_segment=segment, query_types=types, pair=pair)

    def compute_distance(self) -> Tensor:
        """key position - query position: (Tq, Tk) or (B, Tq, Tk)."""
        assert self.query_pos is not None and self.key_pos is not None
        return self.key_pos.unsqueeze(-2) - self.query_pos.unsqueeze(-1)

    def expand_heads(self, table: Tensor) -> Tensor:
        """(Tq, Tk) or (B, Tq, Tk) -> broadcastable with (B, H, Tq, Tk)."""
        return table if table.dim() == 2 else table.unsqueeze(1)


HOOKS = {
    "edit_qk": ("edit_queries", "edit_keys"),
    **{hook: (hook,) for hook in ("mask", "bias", "edit_scores", "add_values", "edit_weights")},
}  # hook -> the methods that a score mod overrides for it


def is_overridden(cls: type[ScoreMod], name: str) -> bool:
    return getattr(cls, name) is not getattr(ScoreMod, name)


class ScoreMod(nn.Module):
    """A score mod: an attention mask, an additive bias, or another change of scores, weights or values. A subclass
    overrides hooks; `hooks` is derived from that, so that a kernel knows what it must support."""

    hooks: ClassVar[frozenset[str]] = frozenset()
    needs_positions: ClassVar[bool] = False
    needs_key_count: ClassVar[bool] = False  # whether it needs the number of all keys, later ones included
    may_mask_all: ClassVar[bool] = True  # whether its mask may mask every key of a query
    reads: ClassVar[frozenset[str]] = frozenset()  # of "queries" and "keys", whose contents it reads
    causal: bool = False  # whether its mask masks all later keys, so that a kernel may leave them out
    is_causal_mask: ClassVar[bool] = False  # whether its mask is the causal mask and nothing else: `is_causal` of SDPA
    masks_past: ClassVar[bool] = False  # whether its mask may mask earlier real keys of the same text

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.hooks = frozenset(hook for hook, names in HOOKS.items() if any(is_overridden(cls, name) for name in names))
        if "mask" in vars(cls):  # declarations of a base class do not hold for another mask
            cls.causal = vars(cls).get("causal", False)
            cls.is_causal_mask = vars(cls).get("is_causal_mask", False)
            cls.masks_past = vars(cls).get("masks_past", True)

    def key(self) -> Hashable:
        """Layers of one call share the masks and biases of score mods with equal keys."""
        return id(self)

    def edit_queries(self, x: Tensor, pos: Tensor) -> Tensor:
        """Change queries (B, H, T, D) at positions `pos` before they are compared with keys."""
        return x

    def edit_keys(self, x: Tensor, pos: Tensor) -> Tensor:
        """Change keys (B, H, T, D) at positions `pos` before they are cached."""
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
    shared: dict[Any, Any] = field(default_factory=dict)  # masks and biases that layers of one call share
    is_cross: bool = False  # cross-attention
    score: Score = DOT
    qkv: nn.Module | None = None  # the QKV projection that they come from
    side: SideOutputs = NO_SIDE  # takes side outputs of score mods, under `path`
    path: LayerPath = ()

    def list_mods(self, *hooks: str) -> list[ScoreMod]:
        """The score mods that override one of these hooks."""
        return [mod for mod in self.score_mods if not mod.hooks.isdisjoint(hooks)]

    def list_masking_mods(self) -> list[ScoreMod]:
        """The score mods whose mask masks something here."""
        return self._share("masking mods", self.list_mods("mask"), self._select_masking)

    def build_mask(self) -> Tensor | None:
        """The attention mask of all mods: True = masked, broadcastable with (B, H, Tq, Tk). Built once for all layers
        of a call."""
        return self._share("mask", self.list_mods("mask"), self._join_masks)

    def build_additive_mask(self) -> Tensor | None:
        """The attention mask as scores to add, -inf where masked: with a bias in each layer, a sum is cheaper than a
        fill."""
        return self._share(f"additive mask {self.q.dtype}", self.list_mods("mask"), self._join_additive_masks)

    def build_bias(self) -> Tensor | None:
        """The sum of all additive attention biases, or None."""
        return self._share("bias", self.list_mods("bias"), self._sum_biases)

    def _select_masking(self, score_mods: list[ScoreMod]) -> list[ScoreMod]:
        return [mod for mod in score_mods if mod.mask(self.layout) is not None]

    def _join_masks(self, score_mods: list[ScoreMod]) -> Tensor | None:
        masks = [mask for mod in score_mods if (mask := mod.mask(self.layout)) is not None]
        return reduce(torch.bitwise_or, masks) if masks else None

    def _join_additive_masks(self, score_mods: list[ScoreMod]) -> Tensor | None:
        mask = self._join_masks(score_mods)
        return mask if mask is None else self.q.new_zeros(mask.shape).masked_fill_(mask, float("-inf"))

    def _sum_biases(self, score_mods: list[ScoreMod]) -> Tensor | None:
        if not score_mods:
            return None
        return sum((mod.bias(self.layout) for mod in score_mods), torch.zeros((), device=self.q.device))

    def _share(self, name: str, score_mods: list[ScoreMod], build: Callable[[list[ScoreMod]], Shared]) -> Shared:
        """The result of `build`, computed once for all layers of a call with this layout and equal score mods."""
        # The ids stay valid as keys because the entry keeps the layout, and so its tensors, alive.
        layout = self.layout
        positions, segments = (layout.query_pos, layout.key_pos), (layout.query_segment, layout.key_segment)
        tensors = (layout.keep, *positions, *segments, layout.pair)
        sizes = make_hashable(layout.queries), make_hashable(layout.keys)
        key = (name, *sizes, *map(id, tensors), *(mod.key() for mod in score_mods))
        if key not in self.shared:
            self.shared[key] = (build(score_mods), layout)
        shared: Shared = self.shared[key][0]
        return shared


@dataclass(frozen=True, slots=True)
class ApproximateMap:
    """The attention map of a mixer without a softmax over all keys, or of attention that no kernel computes (invariant
    point attention), and the inputs of exact attention for the same queries and keys, where it has some. Both are
    computed only if a recorder asks for them."""

    weights: Callable[[], Tensor]  # (B, H, Tq, Tk)
    exact: Callable[[], AttentionInputs] | None = None
    is_cross: bool = False


class ScoreModConfig(PositionConfig):
    """A score mod: usable in one attention (`score_mods`) or, as positions, in all of a stack."""

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the score mod")

    def check_built(self, built: Any, *arguments: Any) -> Any:
        if not isinstance(super().check_built(built), ScoreMod):
            name = type(built).__name__
            raise UserError(f"{describe_config(self)}.build returns {name}, which is not a ScoreMod; subclass ScoreMod")
        return built

    def make_score_mod_builder(self, build_ctx: BuildContext) -> ScoreModBuilder:
        return lambda heads, head_width: (self.build(replace(build_ctx, heads=heads), head_width),)


class Causal(ScoreMod):
    """The causal mask: masks later keys, j > i; a token always attends to itself."""

    causal = True
    is_causal_mask = True
    masks_past = False
    may_mask_all = False

    def key(self) -> Hashable:
        return "causal"

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        if layout.queries == 1:
            return None  # the newest token attends to every key
        device = layout.key_pos.device if layout.key_pos is not None else None
        ones = torch.ones(layout.queries, layout.keys, dtype=torch.bool, device=device)
        return ones.triu(layout.offset + 1)


class Window(ScoreMod):
    """Sliding window attention: masks keys more than `left` before or `right` after the query."""

    needs_positions = True

    def __init__(self, left: int, right: int = 0):
        super().__init__()
        self.left = left
        self.right = right

    def key(self) -> Hashable:
        return "window", self.left, self.right

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        distance = layout.compute_distance()
        return layout.expand_heads((distance < -self.left) | (distance > self.right))


class Padding(ScoreMod):
    """The padding mask: masks keys that are not real tokens."""

    masks_past = False

    def key(self) -> Hashable:
        return "padding"

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        return None if layout.keep is None else ~layout.keep[:, None, None, :]  # (B, 1, 1, Tk)


class Segments(ScoreMod):
    """The document mask of packed sequences: masks keys of other documents in the same row."""

    masks_past = False
    may_mask_all = False

    def key(self) -> Hashable:
        return "segments"

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        if layout.query_segment is None or layout.key_segment is None:
            return None
        return (layout.query_segment.unsqueeze(-1) != layout.key_segment.unsqueeze(-2)).unsqueeze(1)


BASE_MASKS = (Padding(), Segments())  # part of every attention; they mask nothing where the stream has neither


class SoftCap(ScoreMod):
    """Logit soft-capping, as in Gemma 2 (2024): cap * tanh(score / cap) keeps the scaled scores within +-cap, before
    masks and biases."""

    def __init__(self, cap: float):
        super().__init__()
        self.cap = cap

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        return self.cap * torch.tanh(scores / self.cap)


class WindowConfig(ScoreModConfig):
    """Sliding window attention: `left` keys before the query and `right` after it."""

    kind: Literal["window"] = "window"
    left: int = Field(16, ge=0)
    right: int = Field(16, ge=0)

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        return Window(self.left, self.right)


class SoftCapConfig(ScoreModConfig):
    """Logit soft-capping: scores within +-`cap`."""

    kind: Literal["softcap"] = "softcap"
    cap: float = Field(50.0, gt=0)

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        return SoftCap(self.cap)
