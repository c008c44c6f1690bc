"""The mixers of VOLO."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.attention import AttentionConfig
from headwise.config.parts.site import PARTS, BuildContext, PartConfig

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class OutlookConfig(PartConfig):
    """Attention in windows of a grid, whose weights their centres say by themselves. 0 leaves a number to the model."""

    kind: Literal["outlook"] = "outlook"
    heads: int = Field(0, ge=0)
    head_width: int = Field(0, ge=0)
    window: int = Field(3, ge=1)
    stride: int = Field(2, ge=1)  # between centres
    value_bias: bool = False

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.outlook import OutlookAttention

        site.must_look_ahead(self.kind)
        return OutlookAttention(
            site.width,
            self.heads or site.heads,
            head_width=self.head_width or site.head_width,
            window=self.window,
            stride=self.stride,
            bias=self.value_bias,
            dropout=site.attention_dropout,
        )


@PARTS.add
class BareConfig(AttentionConfig):
    """Softmax attention without biases of queries, keys and values, but with one of its output."""

    kind: Literal["bare"] = "bare"  # type: ignore[assignment]

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.attention.multihead import Attention

        part = super().build(replace(site, attention_bias=False))
        assert isinstance(part, Attention)
        part.out = type(part.out)(part.out.in_features, part.out.out_features)
        return part
