"""Non-local blocks (Wang et al. 2018, "Non-local Neural Networks"): attention for convolutional networks, in four
forms.

    y_i = 1/C(x) sum_j f(x_i, x_j) g(x_j),    z_i = norm(W_z y_i) + x_i

    gaussian   f = exp(x_i x_j)                    C = sum_j f     (equation 2)
    embedded   f = exp(theta(x_i) phi(x_j))        C = sum_j f     (equation 3): softmax attention of one head, unscaled
    dot        f = theta(x_i) phi(x_j)             C = N           (equation 4)
    concat     f = relu(w [theta(x_i), phi(x_j)])  C = N           (equation 5)

theta, phi and g have half the channels; phi and g are max-pooled over 2 x 2 pixels, which leaves a quarter of the
keys (section 3.3). The batch norm of W_z is initialised with a gain of 0, so that a block added to a trained network is
the identity at first. The residual add is the wiring's.

Letters: B images, T tokens, h x w grid, D inner width, C width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import QKV, Attention, QKVProjection
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout, Dot, Score, ScoreMod
from headwise.blocks.attention.scores import init_head_matrices, project_heads
from headwise.blocks.batchnorm import LinearNorm
from headwise.blocks.images import count_class_tokens
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Properties, Stream
from headwise.errors import UserError, nearest


class Concat(Score):
    """Concatenation score: relu(w [q, k]) = relu(w_q q + w_k k) (equation 5)."""

    by_head = True

    def __init__(self, width: int):
        super().__init__()
        self.query, self.key = init_head_matrices(1, width, 1), init_head_matrices(1, width, 1)

    def project_query(self, q: Tensor) -> Tensor:
        return project_heads(q, self.query)  # (B, 1, Tq, D) -> (B, 1, Tq, 1)

    def project_key(self, k: Tensor) -> Tensor:
        return project_heads(k, self.key)  # (B, 1, Tk, D) -> (B, 1, Tk, 1)

    def compute_scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return F.relu(queries + keys.transpose(-2, -1))  # (B, 1, Tq, Tk)


class Mean(ScoreMod):
    """Weights are scores divided by the number of keys, instead of a softmax."""

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        scores = inputs.score.compute_scores(inputs.score.project_query(inputs.q) * inputs.scale, inputs.k)
        hidden = inputs.build_mask()
        if hidden is None:
            return scores / inputs.layout.keys
        return scores.masked_fill(hidden, 0.0) / (~hidden).sum(-1, keepdim=True).clamp(min=1)


class BottleneckProjection(QKVProjection):
    """Queries theta(x), keys phi(x) and values g(x); without `embedded`, queries and keys are x itself. Keys and values
    are max-pooled over `pool` x `pool` pixels; class tokens are not pooled."""

    def __init__(self, width: int, inner: int, embedded: bool, pool: int):
        super().__init__()
        self.inner, self.pool = inner, pool
        self.embed = nn.Linear(width, 2 * inner) if embedded else None
        self.value = nn.Linear(width, inner)

    def forward(self, stream: Stream, ctx: Context, score_mods: Sequence[ScoreMod], score: Score) -> QKV:
        x = stream.x
        q, k = self.embed(x).chunk(2, -1) if self.embed is not None else (x, x)  # 2 x (B, T, D)
        k, v = self.max_pool(k, stream), self.max_pool(self.value(x), stream)
        layout = AttentionLayout(q.shape[1], k.shape[1], keep=stream.keep)
        return q.unsqueeze(1), score.project_key(k.unsqueeze(1)), v.unsqueeze(1), layout  # one head: (B, 1, T, D)

    def max_pool(self, x: Tensor, stream: Stream) -> Tensor:
        if self.pool == 1:
            return x
        if stream.grid is None or stream.keep is not None:
            raise UserError("nonlocal: only grids without padding can be pooled; set its pool = 1")
        class_tokens = count_class_tokens(stream)
        maps = x[:, class_tokens:].unflatten(1, stream.grid).permute(0, 3, 1, 2)  # (B, hw, D) -> (B, D, h, w)
        pooled = F.max_pool2d(maps, self.pool, ceil_mode=True).flatten(2).transpose(1, 2)  # -> (B, hw / pool^2, D)
        return torch.cat((x[:, :class_tokens], pooled), dim=1) if class_tokens else pooled


FORMS = ("embedded", "gaussian", "dot", "concat")


class NonLocal(Attention):
    """Non-local block: norm(W_z y), with y in one of FORMS."""

    def __init__(self, width: int, inner: int = 0, form: str = "embedded", pool: int = 2):
        if form not in FORMS:
            raise UserError(f"form: there is no '{form}'; {nearest(form, FORMS)}")
        inner = inner or max(width // 2, 1)
        super().__init__(
            width,
            heads=1,
            qkv=BottleneckProjection(width, inner, form != "gaussian", pool),
            head_width=inner,
            score=Concat(inner) if form == "concat" else Dot(),
            score_mods=(Mean(),) if form in ("dot", "concat") else (),
            bias=False,
        )
        self.out = LinearNorm(inner, width, gain=0.0)  # type: ignore[assignment]

    @property
    def properties(self) -> Properties:
        return replace(super().properties, packing=False)


class NonLocalConfig(PartConfig):
    """Non-local block: one head of `inner` channels with batch norm; keys and values are max-pooled over `pool` x
    `pool` (Wang et al. 2018)."""

    kind: Literal["nonlocal"] = "nonlocal"
    form: Literal["embedded", "gaussian", "dot", "concat"] = "embedded"
    inner: int = Field(0, ge=0)  # 0: half the width
    pool: int = Field(2, ge=1)

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        return NonLocal(build_ctx.width, self.inner, self.form, self.pool)
