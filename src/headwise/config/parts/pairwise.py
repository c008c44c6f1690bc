"""Non-local blocks as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.site import PARTS, BuildContext, PartConfig

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class NonLocalConfig(PartConfig):
    """One head of `inner` channels with batch norm; keys and values are pooled over `pool` x `pool` places of a grid
    (Wang et al. 2018)."""

    kind: Literal["nonlocal"] = "nonlocal"
    form: Literal["embedded", "gaussian", "dot", "concat"] = "embedded"
    inner: int = Field(0, ge=0)  # 0: half the width
    pool: int = Field(2, ge=1)

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.nonlocal_block import NonLocal

        site.must_look_ahead(self.kind)
        return NonLocal(site.width, self.inner, self.form, self.pool)
