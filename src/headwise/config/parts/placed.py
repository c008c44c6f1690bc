"""Attention whose queries and keys are told their places at every layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from headwise.config.parts.attention import AttentionConfig
from headwise.config.parts.site import PARTS, BuildContext, PartConfig
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn

PLACES, MEMORY_PLACES = "places", "memory places"  # under which a stack's site has its own


@PARTS.add
class PositionedAttentionConfig(PartConfig):
    """Softmax attention with places added to what makes queries and keys, not to values (Carion et al. 2020): the
    stack's own, or 2-D sinusoids where it has none."""

    kind: Literal["placed"] = "placed"
    attend_to: Literal["self", "memory"] = "self"
    heads: int = Field(0, ge=0)  # 0: the model's
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.detection import PositionedCrossProjection, PositionedSelfProjection, SinePositions

        plain = AttentionConfig(attend_to=self.attend_to, heads=self.heads, kernel=self.kernel)
        attention: Any = plain.build(replace(site, key_value_heads=0))
        if any("rotate" in mod.hooks for mod in attention.score_mods):
            raise UserError(f"{self.kind}: queries and keys have places already; use positions that do not turn them")
        shape = (site.width, attention.qkv.heads, attention.qkv.head_width, site.attention_bias)
        places = site.once(PLACES, lambda: SinePositions(site.width))
        if self.attend_to == "self":
            attention.qkv = PositionedSelfProjection(*shape, places)
        else:
            there = site.once(MEMORY_PLACES, lambda: SinePositions(site.memory_width))
            attention.qkv = PositionedCrossProjection(*shape, site.memory_width, places, there)
        return attention
