"""Sliding-window attention with global tokens (Longformer, Beltagy et al. 2020, "The Long-Document Transformer").

Some tokens at the start of a row are global: they attend to all tokens, with projections of their own, and all attend
to them. They are the same number in every row, or the first text of each, such as a question (section 3.1: "for QA all
question tokens").

Letters: B rows, T tokens, H heads, D head_width, N blocks, S tokens of a block, W keys of a block, G the largest number
of global tokens of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto, compute_weights
from headwise.blocks.attention.score_mods import BASE_MASKS, AttentionInputs, AttentionLayout
from headwise.blocks.mixers.block_sparse import attend
from headwise.blocks.mixers.patterns import BlockPartition, Sliding
from headwise.blocks.mixers.qkv_mixer import QKVMixerConfig
from headwise.blocks.mixers.sparse import BlockSparseAttention, compute_once, get_keep, to_additive_mask
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Properties, Stream

FIRST_TEXT = "first_text"  # all tokens of the first text of a row are global, but the EOS that ends it


class GlobalSliding(Sliding):
    """Sliding window, and the global tokens of the row: every token attends to them. `key_types` of the layout are 1
    for global tokens."""

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        mask = super().mask(layout)
        assert mask is not None and layout.key_types is not None
        return layout.expand_heads(mask & (layout.key_types == 0).unsqueeze(1))  # (B, 1, T, T)


class GlobalWindowAttention(BlockSparseAttention):
    """Longformer's attention: softmax(Q K^T / sqrt(D)) V over the keys of a window and of the global tokens. Global
    tokens have queries, keys and values of a projection of their own, `global_qkv`, and attend to all tokens."""

    def __init__(
        self, left: int, right: int, global_tokens: int | Literal["first_text"], bias: bool = True, **settings: Any
    ):
        super().__init__(GlobalSliding(left, right), bias=bias, **settings)
        self.global_tokens = global_tokens
        self.global_qkv = self.build_projection(self.qkv.project.in_features, bias)

    @property
    def properties(self) -> Properties:
        return Properties(packing=not self.global_tokens)

    @property
    def reads_token_types(self) -> bool:
        return self.global_tokens == FIRST_TEXT

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        mixed = super().mix(q, k, v, stream, ctx)
        return self._replace_global(mixed, stream, ctx, auto)

    def record_map(
        self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context, weights: Callable[[], Tensor]
    ) -> None:
        def compute_all() -> Tensor:
            return self._replace_global(weights(), stream, ctx, compute_weights)

        super().record_map(q, k, v, stream, ctx, compute_all)

    def _replace_global(
        self, mixed: Tensor, stream: Stream, ctx: Context, attend_all: Callable[[AttentionInputs], Tensor]
    ) -> Tensor:
        """The outputs or maps of all tokens, (B, H, T, ...), with those of the global tokens."""
        is_global = self._find_global_tokens(stream, ctx)  # (B, G)
        count = is_global.shape[1]
        if not count:
            return mixed
        outputs = attend_all(self._build_global_inputs(stream, count))  # (B, H, G, ...)
        outputs = torch.where(is_global[:, None, :, None], outputs, mixed[:, :, :count])
        return torch.cat((outputs, mixed[:, :, count:]), 2)

    def _find_global_tokens(self, stream: Stream, ctx: Context) -> Tensor:
        """(B, G) True = global, of the first G tokens of each row, where G is the largest number of a row; B is 1 if it
        is that of all rows."""
        return compute_once(ctx, ("global tokens", self.global_tokens), lambda: self._mark_global_tokens(stream))

    def _mark_global_tokens(self, stream: Stream) -> Tensor:
        length, device = stream.x.shape[1], stream.x.device
        if isinstance(self.global_tokens, int):
            return torch.ones(1, min(self.global_tokens, length), dtype=torch.bool, device=device)
        types, keep = stream.token_types, stream.keep
        first = torch.ones(1, length, dtype=torch.bool, device=device) if types is None else types == 0
        counts = (first if keep is None else first & keep).sum(1, keepdim=True) - 1  # (B, 1), without EOS
        return torch.arange(max(0, int(counts.max())), device=device) < counts

    def _build_global_inputs(self, stream: Stream, count: int) -> AttentionInputs:
        """The attention of the first `count` tokens to all tokens."""
        q, k, v = self.global_qkv.split(self.global_qkv.project(stream.x))  # 3 x (B, H, T, D)
        for edit_queries, edit_keys in self.qk_edits:
            q, k = edit_queries(q, stream.pos), edit_keys(k, stream.pos)
        q = q[:, :, :count]
        layout = AttentionLayout(q.shape[2], k.shape[2], keep=stream.keep)
        return AttentionInputs(q, k, v, self.head_width**-0.5, layout, BASE_MASKS)

    def _build_inputs(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> AttentionInputs:
        inputs = super()._build_inputs(q, k, v, stream, ctx)
        is_global = self._find_global_tokens(stream, ctx)
        types = compute_once(
            ctx,
            ("global keys", self.global_tokens),
            lambda: F.pad(is_global.long(), (0, k.shape[2] - is_global.shape[1])),
        )
        return replace(inputs, layout=replace(inputs.layout, key_types=types))

    def mix_blocks(self, inputs: AttentionInputs, blocks: BlockPartition) -> Tensor:
        """Attention of all blocks to their windows and, beside them, to the global tokens."""
        assert inputs.layout.key_types is not None
        is_global = inputs.layout.key_types > 0  # (B, T)
        count, keep = int(is_global.sum(1).max()), get_keep(inputs)
        if not count:
            return super().mix_blocks(inputs, blocks)
        mask = self._get_window_mask(self._hide_global_keys(inputs, is_global), blocks)  # (B, 1, N, S, W)
        global_keys = (keep & is_global)[:, None, None, None, :count]  # (B, 1, 1, 1, G)
        global_mask = to_additive_mask(global_keys, inputs.q.dtype)
        mask = torch.cat((mask, global_mask.expand(len(mask), 1, *mask.shape[2:4], -1)), 4)
        k, v = (
            torch.cat((blocks.unfold(x), x[:, :, None, :count].expand(-1, -1, blocks.count, -1, -1)), 3)
            for x in (inputs.k, inputs.v)
        )
        return blocks.merge(attend(blocks.split(inputs.q), k, v, mask))

    def _hide_global_keys(self, inputs: AttentionInputs, is_global: Tensor) -> AttentionInputs:
        """The inputs without the global tokens as keys, which would else count twice; one mask for all layers."""
        layout = inputs.layout
        key = ("local keys", id(layout.keep), layout.keys, self.global_tokens)
        if key not in inputs.shared:
            keep = get_keep(inputs) & ~is_global
            inputs.shared[key] = (replace(layout, keep=keep), layout)  # the layout keeps the id valid
        return replace(inputs, layout=inputs.shared[key][0])


class GlobalWindowConfig(QKVMixerConfig):
    """Longformer's attention: a token attends to `left` tokens before it, `right` after it and to the first
    `global_tokens` of the row, which attend to all; "first_text" stands for those of its first text, a question."""

    kind: Literal["longformer"] = "longformer"
    left: int = Field(256, ge=0)
    right: int = Field(256, ge=0)
    global_tokens: Annotated[int, Field(ge=0)] | Literal["first_text"] = 0

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal("longformer")
        arguments = self.resolve_arguments(build_ctx)
        del arguments["causal"]
        return GlobalWindowAttention(self.left, self.right, self.global_tokens, **arguments)
