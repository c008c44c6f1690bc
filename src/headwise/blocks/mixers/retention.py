"""Multi-scale retention (Sun et al. 2023, "Retentive Network: A Successor to Transformer for Large Language Models").

Head h weighs keys by their distance with a decay g = 1 - 2^(-5-h) instead of a softmax (eqs. 5-8):

    parallel    heads = (Q K^T / sqrt(D) * G) V,    G_ts = g^(t-s) for s <= t, else 0
    recurrent   S_t = g S_{t-1} + k_t^T v_t,    head_t = q_t S_t / sqrt(D)
    chunkwise   parallel within a chunk, recurrent from chunk to chunk
    y = W_o (swish(W_g x) * norm(heads)),    each head normalised separately (group norm)

One implementation has the three forms: a text that fits a chunk is computed in parallel, a single token recurrently. Q
and K are rotated by `positions = "rotary"`, which is the paper's e^(i n theta).

In an encoder, for which the paper has no form, G_ts = g^|t-s| (as in Fan et al. 2024, "RMT").

DISCREPANCY: the paper scales scores for numerical stability (section 2.4). Each factor is one number for a head of a
token, which the group norm cancels, so here is only 1/sqrt(D). As in released code (torchscale) the group norm has
neither gain nor bias.

Letters: B rows, T length, c tokens of a chunk, C width, H heads, D head_width, V value_width.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import SelfProjection
from headwise.blocks.latents import PerceiverSelfProjection
from headwise.blocks.mixers.linear import disable_autocast, expand_heads, split_chunks
from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Properties, Stream

Decay = Literal["powers", "range"]
EPS = 1e-6  # of the group norm


class Retention(QKVMixer):
    """Multi-scale retention: W_o (swish(W_g x) * norm((Q K^T / sqrt(D) * G) V)), with a decay G of each head. A
    decoder's state has constant size.

    >>> Retention(64, heads=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    decay: Tensor

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        value_width: int = 0,
        decay: Decay = "powers",
        chunk: int = 128,
        bias: bool = True,
        **settings: Any,
    ):
        head_width = settings.get("head_width") or width // heads
        self.value_width, self.chunk = value_width or 2 * head_width, chunk  # before the projection is built
        super().__init__(width, heads, bias=bias, **settings)
        self.gate = nn.Linear(width, heads * self.value_width, bias)
        self.out = nn.Linear(heads * self.value_width, width, bias)
        self.register_buffer("decay", compute_decay(heads, decay), persistent=False)

    def build_projection(self, width: int, bias: bool) -> SelfProjection:
        return PerceiverSelfProjection(width, self.heads, self.head_width, self.value_width, bias)

    @property
    def properties(self) -> Properties:
        causal = self.causal
        return Properties(causal=causal, steppable=causal, joins=causal, ragged=causal, packing=True, unbounded=causal)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        with disable_autocast(q):
            q, k, values = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
            self.record_map(q, k, values, stream, ctx, lambda: self._compute_map(q, k, stream))
            scaled = q * self.head_width**-0.5
            if not self.causal:
                return retain_all(scaled, k, values, self.decay, stream).to(v.dtype)
            state = ctx.cache.get_state(ctx.path, lambda: init_state(k, values))
            heads, state = retain_causally(scaled, k, values, self.decay, stream, state, self.chunk)
            ctx.cache.put_state(ctx.path, state)
            return heads.to(v.dtype)

    def project_heads(self, heads: Tensor, stream: Stream) -> Tensor:
        normed = F.layer_norm(heads, heads.shape[-1:], eps=EPS)  # each head of each token
        return self.out(F.silu(self.gate(stream.x)) * normed.transpose(1, 2).flatten(2))  # (B, H, T, V) -> (B, T, HV)

    def _compute_map(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor:
        """The attention map (B, H, T, T): the heads for unit vectors as values."""
        length = q.shape[2]
        units = torch.eye(length, dtype=q.dtype, device=q.device).expand(*q.shape[:2], length, length)
        q = q * self.head_width**-0.5
        if not self.causal:
            return retain_all(q, k, units, self.decay, stream)
        return retain_causally(q, k, units, self.decay, stream, init_state(k, units), self.chunk)[0]


def compute_decay(heads: int, kind: Decay = "powers") -> Tensor:
    """The decay g of each head, (H,): 1 - 2^(-5-h); of "range" 1 - e^x, x from log 1/32 to log 1/512 in equal steps,
    whatever the number of heads."""
    if kind == "powers":
        return 1 - 2.0 ** (-5.0 - torch.arange(heads))
    return 1 - torch.linspace(math.log(1 / 32), math.log(1 / 512), heads).exp()


def retain_all(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, stream: Stream) -> Tensor:
    """Retention of every token with decays of the distance, |t - s|: (B, H, T, D) x 2, (B, H, T, V) -> (B, H, T, V)."""
    place = torch.arange(q.shape[2], device=q.device)
    distance = (place.unsqueeze(-1) - place).abs()
    scores = q @ k.mT * raise_decay(decay, distance, q)  # (B, H, T, T)
    if stream.keep is not None:
        v = v.masked_fill(~expand_heads(stream.keep), 0.0)
    return mask_segments(scores, stream.segment) @ v


def retain_causally(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, stream: Stream, state: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """Chunkwise retention (eq. 7): heads (B, H, T, V), and the state (B, H, D, V) after the last real token. `state`
    is that of earlier tokens."""
    outs, last = [], None
    for q_c, k_c, v_c, keep, segment in split_chunks(q, k, v, stream.keep, stream.segment, size=chunk):
        count = count_tokens(q_c, keep)  # (1, c) or (B, c): padding does not age the state
        if keep is not None:
            v_c = v_c.masked_fill(~expand_heads(keep), 0.0)
        inner = raise_decay(decay, (count.unsqueeze(-1) - count.unsqueeze(-2)).clamp(min=0), q).tril()  # (.., H, c, c)
        to_state = raise_decay(decay, count.unsqueeze(-1), q)  # (.., H, c, 1)
        to_next = raise_decay(decay, (count[:, -1:] - count).unsqueeze(-1), q)
        aged = to_state[..., -1:, :]  # (.., H, 1, 1)
        if segment is not None:
            if last is not None:  # drop the state where a packed document starts with the chunk
                state = state * expand_heads(segment[:, :1] == last)
            last = segment[:, -1:]
            to_state = to_state * expand_heads(segment == segment[:, :1])
            to_next = to_next * expand_heads(segment == last)
            aged = aged * expand_heads(segment[:, :1] == last)
        scores = mask_segments(q_c @ k_c.mT * inner, segment)
        outs.append(scores @ v_c + (q_c * to_state) @ state)
        state = state * aged + (k_c * to_next).mT @ v_c
    return torch.cat(outs, dim=2), state


def init_state(k: Tensor, v: Tensor) -> Tensor:
    """The state before the first token: zeros, (B, H, D, V)."""
    return k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])


def count_tokens(x: Tensor, keep: Tensor | None) -> Tensor:
    """The number of real tokens up to each one: (1, T), with a padding mask (B, T)."""
    return torch.arange(1, x.shape[2] + 1, device=x.device).unsqueeze(0) if keep is None else keep.cumsum(1)


def raise_decay(decay: Tensor, exponent: Tensor, like: Tensor) -> Tensor:
    """g^exponent of each head: (..., c, s) -> (..., H, c, s)."""
    return (exponent.unsqueeze(-3) * decay.to(like.dtype).log().view(-1, 1, 1)).exp()


def mask_segments(scores: Tensor, segment: Tensor | None) -> Tensor:
    """Zero scores between packed documents, (B, H, T, T)."""
    if segment is None:
        return scores
    return scores * (segment.unsqueeze(2) == segment.unsqueeze(1)).unsqueeze(1)  # (B, 1, T, T)


class RetentionConfig(QKVMixerConfig):
    """Multi-scale retention (Sun et al. 2023)."""

    kind: Literal["retention"] = "retention"
    value_width: int = Field(0, ge=0)  # channels of values per head; 0: twice those of queries and keys
    # powers: 1 - 2^(-5-h) of head h; range: from 1 - 1/32 to 1 - 1/512 whatever the number of heads
    decay: Decay = "powers"
    chunk: int = Field(128, ge=1)  # tokens that a decoder computes in parallel

    def build(self, build_ctx: BuildContext) -> nn.Module:
        arguments = self.resolve_arguments(build_ctx)
        return Retention(value_width=self.value_width, decay=self.decay, chunk=self.chunk, **arguments)
