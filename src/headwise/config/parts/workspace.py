"""The shared global workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.mixers import QKVMixerConfig
from headwise.config.parts.site import PARTS, BuildContext
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class WorkspaceConfig(QKVMixerConfig):
    """A few slots that all layers of a stack write to and read from, in the place of attention."""

    kind: Literal["workspace"] = "workspace"
    slots: int = Field(8, ge=1)
    top_k: int = Field(5, ge=0)  # tokens that may write to a slot; 0: all of them
    renormalise: bool = False  # whether the weights of those that may sum to 1

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.workspace import Workspace

        site.must_look_ahead(self.kind)
        if self.slots > site.width:
            raise UserError(f"slots: {self.slots} cannot be told apart at a width of {site.width}; use fewer")
        return Workspace(**self.frame(site), slots=self.slots, top_k=self.top_k, renormalise=self.renormalise)
