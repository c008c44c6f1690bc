"""Talking heads as a score mod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headwise.config.parts.score_mods import ScoreModConfig
from headwise.config.parts.site import SCORE_MODS, BuildContext

if TYPE_CHECKING:
    from torch import nn


@SCORE_MODS.add
class TalkingConfig(ScoreModConfig):
    """Heads exchange their scores before the softmax and their weights after it."""

    kind: Literal["talking"] = "talking"

    def build(self, site: BuildContext, head_width: int) -> nn.Module:
        from headwise.blocks.attention.talking_heads import TalkingHeads

        return TalkingHeads(site.heads)
