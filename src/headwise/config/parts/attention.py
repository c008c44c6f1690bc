"""The two parts of a Transformer's layer: attention and the feed-forward network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.scores import ScaledConfig
from headwise.config.parts.site import PARTS, Activation, AnyScore, AnyScoreMod, BuildContext, PartConfig
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class AttentionConfig(PartConfig):
    """Softmax attention. 0 leaves a number to the model."""

    kind: Literal["attention"] = "attention"
    attend_to: Literal["self", "memory"] = "self"
    heads: int = Field(0, ge=0)
    head_width: int = Field(0, ge=0)
    key_value_heads: int = Field(0, ge=0)
    key_bias: bool = True  # where the model's attentions have biases
    memory_length: int = Field(0, ge=0)  # tokens of earlier segments that a language model still sees
    score: AnyScore = ScaledConfig()
    score_mods: tuple[AnyScoreMod, ...] = ()
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.attention.multihead import Attention, CrossProjection, find_operands_read
        from headwise.blocks.attention.score_mods import Causal
        from headwise.blocks.attention.scores import BOTH

        heads = self.heads or site.heads
        head_width = self.head_width or site.head_width
        if not head_width and site.width % heads:
            raise UserError(f"heads: a width of {site.width} cannot be divided among {heads} heads; choose a divisor")
        head_width = head_width or site.width // heads
        chosen = tuple(mod.build(replace(site, heads=heads), head_width) for mod in self.score_mods)
        qkv: nn.Module
        if self.attend_to == "memory":
            if not site.memory_width:
                raise UserError("attend_to: there is no memory in this stack; use attend_to = 'self'")
            qkv = CrossProjection(site.width, heads, head_width, site.attention_bias, site.memory_width)
        else:
            qkv = self._itself(site, heads, head_width)
            chosen += site.score_mods(heads, head_width) + ((Causal(),) if site.causal else ())
        score = self.score.build(head_width, head_width, heads)
        # After them, so that weights of models in which everything is read are drawn in the order they always were.
        if (reads := find_operands_read(score, chosen)) < BOTH:
            qkv = self._selected(site, heads, head_width, reads)
        return Attention(
            site.width,
            heads,
            qkv=qkv,
            head_width=head_width,
            score=score,
            score_mods=chosen,
            kernel=self.kernel,
            dropout=site.attention_dropout,
            bias=site.attention_bias,
        )

    def _selected(self, site: BuildContext, heads: int, head_width: int, reads: frozenset[str]) -> nn.Module:
        """Projections for a score that does not compare queries with keys."""
        from headwise.blocks.attention.multihead import CrossProjection, SelectedProjections

        shape, bias = (site.width, heads, head_width), site.attention_bias
        if self.attend_to == "memory":
            return CrossProjection(*shape, bias, site.memory_width, reads=reads)
        if self.memory_length:
            raise UserError("memory_length and score: one attention cannot have both; leave one out")
        return SelectedProjections(*shape, bias, self.key_value_heads or site.key_value_heads or heads, reads)

    def _itself(self, site: BuildContext, heads: int, head_width: int) -> nn.Module:
        from headwise.blocks.attention.multihead import (
            GroupedQueryProjection,
            NoKeyBiasProjection,
            SegmentRecurrenceProjection,
            SelfProjection,
        )

        shape, bias = (site.width, heads, head_width), site.attention_bias
        fewer = self.key_value_heads or site.key_value_heads or heads
        makers = {
            "key_value_heads": (fewer != heads, lambda: GroupedQueryProjection(*shape, bias, fewer)),
            "memory_length": (
                self.memory_length > 0,
                lambda: SegmentRecurrenceProjection(*shape, bias, self.memory_length),
            ),
            "key_bias": (bias and not self.key_bias, lambda: NoKeyBiasProjection(*shape)),
        }
        chosen = [name for name, (asked, _) in makers.items() if asked]
        if len(chosen) > 1:
            raise UserError(f"{' and '.join(chosen)}: one attention cannot have both; leave one out")
        return makers[chosen[0]][1]() if chosen else SelfProjection(*shape, bias)


@PARTS.add
class MlpConfig(PartConfig):
    """The feed-forward network: `hidden` channels, or `expand` times the width; 0 leaves it to the model."""

    kind: Literal["mlp"] = "mlp"
    expand: float = Field(0.0, ge=0)
    hidden: int = Field(0, ge=0)
    activation: Activation | Literal[""] = ""
    chunk: int = Field(0, ge=0)  # tokens at once, for less memory; 0: all

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.feedforward import FeedForward

        hidden = self.hidden or round(self.expand * site.width) or site.hidden
        activation = self.activation or site.activation
        return FeedForward(site.width, hidden, activation, site.mlp_bias, site.hidden_dropout, self.chunk)
