"""Attention as the Perceivers have it: values wider than queries and keys, a memory with a norm of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.mixers import QKVMixerConfig
from headwise.config.parts.site import PARTS, BuildContext
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class UnevenConfig(QKVMixerConfig):
    """Softmax attention with `value_width` channels of values a head; 0: the width divided among the heads."""

    kind: Literal["uneven"] = "uneven"
    attend_to: Literal["self", "memory"] = "self"
    value_width: int = Field(0, ge=0)

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.attention.score_mods import Causal
        from headwise.blocks.latents import UnevenAttention, UnevenCrossProjection, UnevenSelfProjection
        from headwise.blocks.norm import LayerNorm

        frame = self.frame(site)
        heads, head_width, bias, score_mods = frame["heads"], frame["head_width"], frame["bias"], frame["score_mods"]
        if not self.value_width and site.width % heads:
            raise UserError(f"value_width: a width of {site.width} cannot be divided among {heads} heads; set it")
        shape = (site.width, heads, head_width, self.value_width or site.width // heads)
        qkv: nn.Module
        if self.attend_to == "memory":
            if not site.memory_width:
                raise UserError("attend_to: there is no memory in this stack; use attend_to = 'self'")
            qkv, score_mods = UnevenCrossProjection(*shape, bias, site.memory_width, LayerNorm(site.memory_width)), ()
        else:
            qkv, score_mods = UnevenSelfProjection(*shape, bias), (*score_mods, *((Causal(),) if site.causal else ()))
        return UnevenAttention(*shape, qkv=qkv, score_mods=score_mods, bias=bias, dropout=site.attention_dropout)
