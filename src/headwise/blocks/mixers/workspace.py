"""Shared global workspace instead of pairwise attention (Goyal et al. 2022, "Coordination Among Neural Modules Through
a Shared Global Workspace").

Tokens compete to write to a few slots, then every token reads all slots: T * N pairs instead of T * T. The slots are
passed from layer to layer. As in the released code one set of projections serves both attentions: slots are queries
when writing, tokens are queries when reading.

DISCREPANCY: the released code has neither the 1/sqrt(D) of the paper nor an output projection, has a norm and a small
network between writing and gating, and separate gates for each slot. Here both attentions have scale and output
projection, what is written goes directly to the gates, and all slots share the gates.

Letters: B rows, T length, N slots, C width, H heads, D head_width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto, compute_weights
from headwise.blocks.attention.score_mods import BASE_MASKS, AttentionInputs, AttentionLayout, ScoreMod
from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.pool import mean_pool
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError


class TopK(ScoreMod):
    """Top-k attention: keeps the `count` largest weights of each query after the softmax, which then sum to less than 1
    unless renormalised."""

    def __init__(self, count: int, renormalise: bool = False):
        super().__init__()
        self.count, self.renormalise = count, renormalise

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        best = weights.topk(min(self.count, weights.shape[-1]), dim=-1)
        top = torch.zeros_like(weights).scatter(-1, best.indices, best.values)
        if not self.renormalise:
            return top
        return top / top.sum(-1, keepdim=True).clamp(min=torch.finfo(top.dtype).tiny)


class Workspace(QKVMixer):
    """Shared global workspace: write, then read (steps 2 and 3 of the paper), with R the tokens and M the slots:

        M~ = softmax(M W_q (R W_k)^T / sqrt(D)) R W_v, of all tokens (soft) or of the top k of each slot (hard)
        M <- i * tanh(M~) + f * M, i, f = sigmoid(W mean_t relu(w * r_t) + U tanh(M) + (0, 1))
        R <- softmax(R W_q (M W_k)^T / sqrt(D)) M W_v

    The attention map of tokens is the product of both maps.
    """

    def __init__(self, width: int, *, slots: int = 8, top_k: int = 0, renormalise: bool = False, **settings: Any):
        super().__init__(width, **settings)
        self.slots = slots
        self.competition: tuple[ScoreMod, ...] = (TopK(top_k, renormalise),) if top_k else ()
        self.stress = nn.Parameter(torch.randn(width))
        self.heed = nn.Linear(width, 2 * width)
        self.hold = nn.Linear(width, 2 * width, bias=False)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        key = ("workspace", self.slots, stream.x.shape[-1], *ctx.path[:1])  # stages of another width have other slots
        slots = ctx.shared.get(key)
        if slots is None:  # rows of the identity, so that slots differ
            slots = torch.eye(self.slots, stream.x.shape[-1], dtype=q.dtype, device=q.device).expand(q.shape[0], -1, -1)
        slot_queries, _, _ = self.qkv.split(self.qkv.project(slots))  # (B, N, C) -> (B, H, N, D)
        layout = AttentionLayout(self.slots, k.shape[2], keep=stream.keep)
        writing = AttentionInputs(slot_queries, k, v, self.head_width**-0.5, layout, (*self.competition, *BASE_MASKS))
        slots = self.update_slots(slots, self.out(auto(writing).transpose(1, 2).flatten(2)), stream)
        ctx.shared[key] = slots
        _, keys, values = self.qkv.split(self.qkv.project(slots))  # (B, N, C) -> 2 x (B, H, N, D)
        reading = AttentionInputs(q, keys, values, self.head_width**-0.5, AttentionLayout(q.shape[2], self.slots))
        self.record_map(q, k, v, stream, ctx, lambda: compute_weights(reading) @ compute_weights(writing))
        return auto(reading)

    def update_slots(self, slots: Tensor, written: Tensor, stream: Stream) -> Tensor:
        """Gated update of the slots, (B, N, C)."""
        from_tokens = self.heed(mean_pool(stream.with_x((self.stress * stream.x).relu())))  # (B, T, C) -> (B, 2C)
        input_gate, forget_gate = (from_tokens.unsqueeze(1) + self.hold(slots.tanh())).chunk(2, dim=-1)  # 2 x (B, N, C)
        return input_gate.sigmoid() * written.tanh() + (forget_gate + 1).sigmoid() * slots


class WorkspaceConfig(QKVMixerConfig):
    """Shared global workspace: slots that all layers of a stack write to and read from (Goyal et al. 2022)."""

    kind: Literal["workspace"] = "workspace"
    slots: int = Field(8, ge=1)
    top_k: int = Field(5, ge=0)  # tokens that write to a slot; 0: all
    renormalise: bool = False  # weights of the top k sum to 1

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        if self.slots > build_ctx.width:
            raise UserError(
                f"slots: {self.slots} slots need a width of at least as many, not {build_ctx.width}; use fewer"
            )
        return Workspace(
            **self.resolve_arguments(build_ctx), slots=self.slots, top_k=self.top_k, renormalise=self.renormalise
        )
