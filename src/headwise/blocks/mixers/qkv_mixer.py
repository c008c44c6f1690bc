"""Base class of efficient attention: the QKV and output projections of attention, without its softmax over all keys.

A subclass of `QKVMixer` implements `mix`. Its parameters have the names of attention's, so weights transfer between the
two (`headwise.swap`).

Letters: B rows, T length, C width, H heads, D head_width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import SelfProjection
from headwise.blocks.attention.score_mods import (
    BASE_MASKS,
    ApproximateMap,
    AttentionInputs,
    AttentionLayout,
    Causal,
    ScoreMod,
)
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Part, Stream
from headwise.errors import UserError


class QKVMixer(Part):
    """y = W_o mix(W_q x, W_k x, W_v x), with heads as in attention."""

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        head_width: int = 0,
        score_mods: Sequence[ScoreMod] = (),
        bias: bool = True,
        causal: bool = False,
    ):
        super().__init__()
        if not head_width and width % heads:
            raise UserError(f"heads: a width of {width} cannot be divided among {heads} heads; choose a divisor")
        for mod in score_mods:
            if mod.hooks != {"edit_qk"}:
                raise UserError(
                    f"positions: {type(self).__name__} forms no scores that {type(mod).__name__} could change; "
                    "use sinusoid, learned, rotary or none"
                )
        self.heads, self.head_width, self.causal = heads, head_width or width // heads, causal
        self.qkv = self.build_projection(width, bias)
        self.score_mods = nn.ModuleList(score_mods)
        self.qk_edits = [(mod.edit_queries, mod.edit_keys) for mod in score_mods]
        self.out = nn.Linear(heads * self.head_width, width, bias)

    def build_projection(self, width: int, bias: bool) -> SelfProjection:
        """The QKV projection."""
        return SelfProjection(width, self.heads, self.head_width, bias)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        q, k, v = self.qkv.split(self.qkv.project(stream.x))  # 3 x (B, H, T, D)
        for edit_queries, edit_keys in self.qk_edits:
            q, k = edit_queries(q, stream.pos), edit_keys(k, stream.pos)
        mixed = ctx.record.edit_heads(ctx.path, self.mix(q, k, v, stream, ctx))
        return self.out(mixed.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, HD)

    @abstractmethod
    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        """3 x (B, H, T, D) -> (B, H, T, D). While decoding, the T tokens follow those in `ctx.cache`."""

    def record_map(
        self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context, weights: Callable[[], Tensor]
    ) -> None:
        """Pass the recorder the attention map that this mixer implies, and the inputs of exact softmax attention."""

        def exact() -> AttentionInputs:
            layout = AttentionLayout(
                q.shape[2], k.shape[2], stream.pos, stream.pos, stream.keep, stream.segment, stream.segment
            )
            score_mods = ((Causal(),) if self.causal else ()) + BASE_MASKS
            return AttentionInputs(q, k, v, self.head_width**-0.5, layout, score_mods)

        ctx.record.observe(ctx.path, ApproximateMap(weights, exact))


class QKVMixerConfig(PartConfig):
    """Settings of a mixer that replaces self-attention. 0: the model's number."""

    heads: int = Field(0, ge=0)
    head_width: int = Field(0, ge=0)

    def resolve_arguments(self, build_ctx: BuildContext) -> dict[str, Any]:
        """The arguments of `QKVMixer` for a build context."""
        heads = self.heads or build_ctx.heads
        head_width = self.head_width or build_ctx.head_width
        if not head_width and build_ctx.width % heads:
            raise UserError(
                f"heads: a width of {build_ctx.width} cannot be divided among {heads} heads; choose a divisor"
            )
        head_width = head_width or build_ctx.width // heads
        return {
            "width": build_ctx.width,
            "heads": heads,
            "head_width": head_width,
            "score_mods": build_ctx.build_score_mods(heads, head_width),
            "bias": build_ctx.attention_bias,
            "causal": build_ctx.causal,
        }
