"""Sliding-window attention with global tokens (Longformer, Beltagy et al. 2020, "The Long-Document Transformer").

The first tokens of a text are global: they attend to all tokens, with projections of their own, and all attend to them.

Letters: B rows, T tokens, H heads, D head_width, N blocks, S tokens of a block, W keys of a block, G global tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto, compute_weights
from headwise.blocks.attention.score_mods import BASE_MASKS, AttentionInputs, AttentionLayout
from headwise.blocks.mixers.block_sparse import attend
from headwise.blocks.mixers.patterns import BlockPartition, Sliding
from headwise.blocks.mixers.qkv_mixer import QKVMixerConfig
from headwise.blocks.mixers.sparse import BlockSparseAttention, get_keep, to_additive_mask
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Properties, Stream


class GlobalSliding(Sliding):
    """Sliding window, and the first `global_tokens` of the row: every token attends to them."""

    def __init__(self, left: int, right: int, global_tokens: int):
        super().__init__(left, right)
        self.global_tokens = global_tokens

    def key(self) -> Any:
        return *super().key(), self.global_tokens

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        mask = super().mask(layout)
        assert mask is not None and layout.key_pos is not None
        return mask & (layout.key_pos >= self.global_tokens)


class GlobalWindowAttention(BlockSparseAttention):
    """Longformer's attention: softmax(Q K^T / sqrt(D)) V over the keys of a window and of the global tokens. Global
    tokens have queries, keys and values of a projection of their own, `global_qkv`, and attend to all tokens."""

    def __init__(self, left: int, right: int, global_tokens: int, bias: bool = True, **settings: Any):
        super().__init__(GlobalSliding(left, right, global_tokens), bias=bias, **settings)
        self.global_tokens = global_tokens
        self.global_qkv = self.build_projection(self.qkv.project.in_features, bias)

    @property
    def properties(self) -> Properties:
        return Properties(packing=not self.global_tokens)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        mixed = super().mix(q, k, v, stream, ctx)
        if not self.global_tokens:
            return mixed
        return torch.cat((auto(self._build_global_inputs(stream)), mixed[:, :, self.global_tokens :]), 2)

    def record_map(
        self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context, weights: Callable[[], Tensor]
    ) -> None:
        def compute_all() -> Tensor:
            global_weights = compute_weights(self._build_global_inputs(stream))
            return torch.cat((global_weights, weights()[:, :, self.global_tokens :]), 2)

        super().record_map(q, k, v, stream, ctx, compute_all if self.global_tokens else weights)

    def _build_global_inputs(self, stream: Stream) -> AttentionInputs:
        """The attention of the global tokens to all tokens."""
        q, k, v = self.global_qkv.split(self.global_qkv.project(stream.x))  # 3 x (B, H, T, D)
        for edit_queries, edit_keys in self.qk_edits:
            q, k = edit_queries(q, stream.pos), edit_keys(k, stream.pos)
        q = q[:, :, : self.global_tokens]
        layout = AttentionLayout(q.shape[2], k.shape[2], keep=stream.keep)
        return AttentionInputs(q, k, v, self.head_width**-0.5, layout, BASE_MASKS)

    def mix_blocks(self, inputs: AttentionInputs, blocks: BlockPartition) -> Tensor:
        """Attention of all blocks to their windows and, beside them, to the global tokens."""
        count, keep = self.global_tokens, get_keep(inputs)
        if not count:
            return super().mix_blocks(inputs, blocks)
        mask = self._get_window_mask(self._hide_global_keys(inputs), blocks)  # (B, 1, N, S, W)
        global_mask = to_additive_mask(keep[:, None, None, None, :count], inputs.q.dtype)  # (B, 1, 1, 1, G)
        mask = torch.cat((mask, global_mask.expand(-1, 1, *mask.shape[2:4], -1)), 4)
        k, v = (
            torch.cat((blocks.unfold(x), x[:, :, None, :count].expand(-1, -1, blocks.count, -1, -1)), 3)
            for x in (inputs.k, inputs.v)
        )
        return blocks.merge(attend(blocks.split(inputs.q), k, v, mask))

    def _hide_global_keys(self, inputs: AttentionInputs) -> AttentionInputs:
        """The inputs without the global tokens as keys, which would else count twice; one mask for all layers."""
        layout = inputs.layout
        key = ("local keys", id(layout.keep), layout.keys, self.global_tokens)
        if key not in inputs.shared:
            keep = F.pad(get_keep(inputs)[:, self.global_tokens :], (self.global_tokens, 0), value=False)
            inputs.shared[key] = (replace(layout, keep=keep), layout)  # the layout keeps the id valid
        return replace(inputs, layout=inputs.shared[key][0])


class GlobalWindowConfig(QKVMixerConfig):
    """Longformer's attention: a token attends to `left` tokens before it, `right` after it and to the first
    `global_tokens` of the text, which attend to all."""

    kind: Literal["longformer"] = "longformer"
    left: int = Field(256, ge=0)
    right: int = Field(256, ge=0)
    global_tokens: int = Field(0, ge=0)

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal("longformer")
        arguments = self.resolve_arguments(build_ctx)
        del arguments["causal"]
        return GlobalWindowAttention(self.left, self.right, self.global_tokens, **arguments)
