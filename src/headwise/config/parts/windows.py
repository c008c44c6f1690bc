"""Attention inside windows of an image's grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.mixers import QKVMixerConfig
from headwise.config.parts.scores import ScaledConfig
from headwise.config.parts.site import PARTS, AnyScore, BuildContext
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from headwise.blocks.grid import RelativePositionBias


@PARTS.add
class WindowsConfig(QKVMixerConfig):
    """Softmax attention in windows of `window` x `window` tokens. `shift` rolls the grid before it is cut. Where a key
    stands, seen from its query, counts by a learned table, by a network (which knows offsets as shares of
    `pretrained_window`; 0: the window), or not at all."""

    kind: Literal["windows"] = "windows"
    window: int = Field(7, ge=1)
    shift: int = Field(0, ge=0)
    position_bias: Literal["table", "network", "none"] = "table"
    pretrained_window: int = Field(0, ge=0)
    key_bias: bool = True  # where the model's attentions have biases
    score: AnyScore = ScaledConfig()
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.attention.multihead import (
            NoKeyBiasProjection,
            SelectedProjections,
            SelfProjection,
            find_operands_read,
        )
        from headwise.blocks.attention.scores import BOTH
        from headwise.blocks.mixers.window_attention import WindowAttention

        site.must_look_ahead(self.kind)
        if self.shift >= self.window:
            raise UserError(
                f"shift: windows of {self.window} can be shifted by up to {self.window - 1}; use half of it"
            )
        frame = self.frame(site)
        heads, head_width, bias = frame["heads"], frame["head_width"], frame["bias"]
        shape = (site.width, heads, head_width)
        qkv = NoKeyBiasProjection(*shape) if bias and not self.key_bias else SelfProjection(*shape, bias)
        score, score_mods = (
            self.score.build(head_width, head_width, heads),
            (*self._offsets(heads), *frame["score_mods"]),
        )
        if (reads := find_operands_read(score, score_mods)) < BOTH:
            qkv = SelectedProjections(*shape, bias, heads, reads)
        return WindowAttention(
            site.width,
            heads,
            window=self.window,
            shift=self.shift,
            qkv=qkv,
            head_width=head_width,
            score=score,
            score_mods=score_mods,
            kernel=self.kernel,
            dropout=site.attention_dropout,
            bias=bias,
        )

    def _offsets(self, heads: int) -> tuple[RelativePositionBias, ...]:
        from headwise.blocks.grid import NetworkPositionBias, TablePositionBias

        if self.position_bias == "table":
            return (TablePositionBias(heads, self.window),)
        return (
            (NetworkPositionBias(heads, self.window, self.pretrained_window),)
            if self.position_bias == "network"
            else ()
        )
