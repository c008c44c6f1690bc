"""Score mods: attention masks (causal, sliding window, padding, packed documents) and logit soft-capping. Those that
are positions (ALiBi, T5, Shaw, rotary) are in `blocks.positions`.

The padding mask and the document mask belong to every attention (they do nothing where a stream has neither); the
others are chosen.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.attention.inputs import AttentionInputs, AttentionLayout, ScoreMod
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.base import ScoreModConfig


class Causal(ScoreMod):
    """The causal mask: masks later keys, j > i; a token always attends to itself."""

    causal = True
    masks_past = False
    may_mask_all = False

    def key(self) -> Any:
        return "causal"

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        if layout.queries == 1:
            return None  # the newest token: every key is in its past
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

    def key(self) -> Any:
        return "window", self.left, self.right

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        distance = layout.distance()
        return layout.expand_heads((distance < -self.left) | (distance > self.right))


class Padding(ScoreMod):
    """The padding mask: masks keys that are no real tokens."""

    masks_past = False

    def key(self) -> Any:
        return "padding"

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        return None if layout.keep is None else ~layout.keep[:, None, None, :]  # (B, 1, 1, Tk)


class Segments(ScoreMod):
    """The document mask of packed sequences: masks keys of other documents in the same row."""

    masks_past = False
    may_mask_all = False

    def key(self) -> Any:
        return "segments"

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        if layout.query_segment is None or layout.key_segment is None:
            return None
        return (layout.query_segment.unsqueeze(-1) != layout.key_segment.unsqueeze(-2)).unsqueeze(1)


ALWAYS = (Padding(), Segments())


class SoftCap(ScoreMod):
    """Logit soft-capping, as in Gemma 2 (2024): cap * tanh(score / cap) keeps the scaled scores within +-cap, before
    masks and biases."""

    def __init__(self, cap: float):
        super().__init__()
        self.cap = cap

    def edit_scores(self, scores: Tensor, inputs: AttentionInputs) -> Tensor:
        return self.cap * torch.tanh(scores / self.cap)


class WindowConfig(ScoreModConfig):
    kind: Literal["window"] = "window"
    left: int = Field(16, ge=0)
    right: int = Field(16, ge=0)

    def build(self, site: BuildContext, head_width: int) -> ScoreMod:
        return Window(self.left, self.right)


class SoftCapConfig(ScoreModConfig):
    """Scores that cannot grow beyond `cap`."""

    kind: Literal["softcap"] = "softcap"
    cap: float = Field(50.0, gt=0)

    def build(self, site: BuildContext, head_width: int) -> ScoreMod:
        return SoftCap(self.cap)
