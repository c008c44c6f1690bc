"""Memory-compressed attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.mixers import QKVMixerConfig
from headwise.config.parts.site import PARTS, BuildContext

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class CompressedConfig(QKVMixerConfig):
    """Keys and values of `factor` tokens each become one."""

    kind: Literal["compressed"] = "compressed"
    factor: int = Field(3, ge=1)

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.compressed import CompressedAttention

        return CompressedAttention(self.factor, **self.frame(site))
