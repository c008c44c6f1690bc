"""A shared workspace in the place of pairwise attention (Goyal et al. 2022, "Coordination Among Neural Modules Through
a Shared Global Workspace").

Tokens compete to write to a few slots, then every token reads all slots: T * N pairs instead of T * T. The slots go on
from layer to layer of a call. As in the released code one set of projections serves both ways: slots ask and tokens
tell when something is written, tokens ask and slots tell when it is read.

DISCREPANCY: the released code has neither the 1/sqrt(D) of the paper nor an output projection, and puts a norm and a
small network between writing and gating, with gates of its own for each slot. Here both looks are those of attention,
scale and output projection included, what is written goes straight to the gates, and all slots share these.

Letters: B rows, T length, N slots, C width, H heads, D head_width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks import pool
from headwise.blocks.attention.kernels import auto, weights
from headwise.blocks.attention.score_mods import ALWAYS, AttentionInputs, AttentionLayout, ScoreMod
from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError


class TopK(ScoreMod):
    """The heaviest `count` keys of each query; the others' weights become 0 after the softmax, so what is left sums to
    less than 1 unless it is renormalised."""

    def __init__(self, count: int, renormalise: bool = False):
        super().__init__()
        self.count, self.renormalise = count, renormalise

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        best = weights.topk(min(self.count, weights.shape[-1]), dim=-1)
        won = torch.zeros_like(weights).scatter(-1, best.indices, best.values)
        if not self.renormalise:
            return won
        return won / won.sum(-1, keepdim=True).clamp(min=torch.finfo(won.dtype).tiny)


class Workspace(QKVMixer):
    """Write, then read (steps 2 and 3 of the paper), with R the tokens and M the slots:

        M~ = softmax(M W_q (R W_k)^T / sqrt(D)) R W_v, of all tokens (soft) or of the top k of each slot (hard)
        M <- i * tanh(M~) + f * M, i, f = sigmoid(W mean_t relu(w * r_t) + U tanh(M) + (0, 1))
        R <- softmax(R W_q (M W_k)^T / sqrt(D)) M W_v

    The map that this implies is the product of both looks.
    """

    def __init__(self, width: int, *, slots: int = 8, top_k: int = 0, renormalise: bool = False, **settings: Any):
        super().__init__(width, **settings)
        self.slots = slots
        self.competition: tuple[ScoreMod, ...] = (TopK(top_k, renormalise),) if top_k else ()
        self.stress = nn.Parameter(torch.randn(width))
        self.heed = nn.Linear(width, 2 * width)
        self.hold = nn.Linear(width, 2 * width, bias=False)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        stack = ("workspace", self.slots, stream.x.shape[-1], *ctx.path[:1])  # stages of another width have their own
        slots = ctx.shared.get(stack)
        if slots is None:  # rows of the identity: each slot begins as another
            slots = torch.eye(self.slots, stream.x.shape[-1], dtype=q.dtype, device=q.device).expand(len(q), -1, -1)
        asks, _, _ = self.qkv.split(self.qkv.project(slots))  # (B, N, C) -> (B, H, N, D)
        layout = AttentionLayout(self.slots, k.shape[2], keep=stream.keep)
        writing = AttentionInputs(asks, k, v, self.head_width**-0.5, layout, (*self.competition, *ALWAYS))
        slots = self.updated(slots, self.out(auto(writing).transpose(1, 2).flatten(2)), stream)
        ctx.shared[stack] = slots
        _, keys, values = self.qkv.split(self.qkv.project(slots))  # (B, N, C) -> 2 x (B, H, N, D)
        reading = AttentionInputs(q, keys, values, self.head_width**-0.5, AttentionLayout(q.shape[2], self.slots))
        self.record_map(q, k, v, stream, ctx, lambda: weights(reading) @ weights(writing))
        return auto(reading)

    def updated(self, slots: Tensor, written: Tensor, stream: Stream) -> Tensor:
        """The slots (B, N, C) after something was written."""
        heard = self.heed(pool.mean(stream.with_x((self.stress * stream.x).relu())))  # (B, T, C) -> (B, 2C)
        come, stay = (heard.unsqueeze(1) + self.hold(slots.tanh())).chunk(2, dim=-1)  # 2 x (B, N, C)
        return come.sigmoid() * written.tanh() + (stay + 1).sigmoid() * slots


class WorkspaceConfig(QKVMixerConfig):
    """A few slots that all layers of a stack write to and read from, in the place of attention."""

    kind: Literal["workspace"] = "workspace"
    slots: int = Field(8, ge=1)
    top_k: int = Field(5, ge=0)  # tokens that may write to a slot; 0: all of them
    renormalise: bool = False  # whether the weights of those that may sum to 1

    def build(self, site: BuildContext) -> nn.Module:
        site.must_look_ahead(self.kind)
        if self.slots > site.width:
            raise UserError(f"slots: {self.slots} cannot be told apart at a width of {site.width}; use fewer")
        return Workspace(
            **self.resolve_arguments(site), slots=self.slots, top_k=self.top_k, renormalise=self.renormalise
        )
