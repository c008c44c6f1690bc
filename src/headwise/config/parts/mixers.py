"""What the configs of mixers with queries, keys and values have in common."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from headwise.config.parts.site import BuildContext, PartConfig
from headwise.errors import UserError


class QKVMixerConfig(PartConfig):
    """A mixer in the place of self-attention. 0 leaves a number to the model."""

    heads: int = Field(0, ge=0)
    head_width: int = Field(0, ge=0)

    def frame(self, site: BuildContext) -> dict[str, Any]:
        """The arguments of `blocks.mixers.projected.Projected` at a site."""
        heads = self.heads or site.heads
        head_width = self.head_width or site.head_width
        if not head_width and site.width % heads:
            raise UserError(f"heads: a width of {site.width} cannot be divided among {heads} heads; choose a divisor")
        head_width = head_width or site.width // heads
        return {
            "width": site.width,
            "heads": heads,
            "head_width": head_width,
            "score_mods": site.score_mods(heads, head_width),
            "bias": site.attention_bias,
            "causal": site.causal,
        }
