"""QK norm: queries and keys are normalised before they are compared (Henry et al. 2020; Dehghani et al. 2023)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from headwise.blocks.attention.score_mods import ScoreMod, ScoreModConfig
from headwise.blocks.norm import RMSNormConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.tables import AnyNorm


class QKNorm(ScoreMod):
    """QK norm: a norm of each query and one of each key, over the channels of a head, so that scores stay bounded.

    Before rotary positions, as in Qwen3: score mods of an attention come before the positions of the model.
    """

    def __init__(self, query_norm: nn.Module, key_norm: nn.Module):
        super().__init__()
        self.query_norm, self.key_norm = query_norm, key_norm

    def edit_queries(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.query_norm(x)

    def edit_keys(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.key_norm(x)


class QKNormConfig(ScoreModConfig):
    """QK norm: queries and keys are normalised, each head alone"""

    kind: Literal["qk_norm"] = "qk_norm"
    norm: AnyNorm = RMSNormConfig()

    def build(self, build_ctx: BuildContext, head_width: int) -> ScoreMod:
        return QKNorm(self.norm.build(head_width), self.norm.build(head_width))
