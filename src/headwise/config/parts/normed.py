"""Parts with batch norm in their projections, as values (Graham et al. 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.mixers import QKVMixerConfig
from headwise.config.parts.site import PARTS, BuildContext, PartConfig

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class LeViTAttentionConfig(QKVMixerConfig):
    """LeViT's attention: values are `value_expand` times as wide as keys."""

    kind: Literal["normed"] = "normed"
    value_expand: int = Field(2, ge=1)

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.levit_attention import BatchNormSelfProjection, LeViTAttention

        site.must_look_ahead(self.kind)
        frame = self.frame(site)
        head_width = frame["head_width"]
        qkv = BatchNormSelfProjection(site.width, frame["heads"], head_width, self.value_expand * head_width)
        return LeViTAttention(qkv, site.width, frame["score_mods"])


@PARTS.add
class LeViTMlpConfig(PartConfig):
    """LeViT's feed-forward network, as `hidden` as the model's; its activation is hard swish."""

    kind: Literal["normed_mlp"] = "normed_mlp"

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.levit_attention import LeViTFeedForward

        return LeViTFeedForward(site.width, site.hidden)
