"""The Fourier transform in the place of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headwise.config.parts.site import PARTS, BuildContext, PartConfig

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class FourierConfig(PartConfig):
    """Re FFT along tokens and channels: nothing to learn, nothing to set."""

    kind: Literal["fourier"] = "fourier"

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.fourier import FourierMixing

        site.must_look_ahead(self.kind)
        return FourierMixing()
