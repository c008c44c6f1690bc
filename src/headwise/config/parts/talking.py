"""Talking heads as a score term."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headwise.config.parts.site import TERMS, Site
from headwise.config.parts.terms import TermConfig

if TYPE_CHECKING:
    from torch import nn


@TERMS.add
class TalkingConfig(TermConfig):
    """Heads exchange their scores before the softmax and their weights after it."""

    kind: Literal["talking"] = "talking"

    def build(self, site: Site, head_width: int) -> nn.Module:
        from headwise.blocks.talking import TalkingHeads

        return TalkingHeads(site.heads)
