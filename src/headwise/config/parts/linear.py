"""Attention in linear time: with a plain feature map, and with random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.mixers import QKVMixerConfig
from headwise.config.parts.site import PARTS, BuildContext

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class LinearConfig(QKVMixerConfig):
    """The linear attention of Katharopoulos et al. (2020)."""

    kind: Literal["linear"] = "linear"

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.linear import LinearAttention

        return LinearAttention(**self.frame(site))


@PARTS.add
class PerformerConfig(QKVMixerConfig):
    """Softmax attention by random features (Choromanski et al. 2021)."""

    kind: Literal["performer"] = "performer"
    features: int = Field(256, ge=0)  # 0: head_width * log(head_width)
    kernel: Literal["softmax", "relu", "trig"] = "softmax"
    orthogonal: bool = True  # within blocks of head_width features
    norms: Literal["chi", "sqrt"] = "chi"  # lengths of the directions: Gaussian vectors', or all sqrt(head_width)
    redraw: int = Field(1000, ge=0)  # passes in training from one draw to the next; 0: never

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.favor import Performer

        return Performer(
            **self.frame(site),
            features=self.features,
            kernel=self.kernel,
            orthogonal=self.orthogonal,
            norms=self.norms,
            redraw=self.redraw,
        )
