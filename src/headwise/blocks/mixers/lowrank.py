"""Attention to a summary of the text: Linformer (Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity").

Of n keys and n values k mixtures each are made, with one learned weight for each place; the softmax goes over these k.
Time and memory grow with n k instead of n^2. What a mixture is made of are all places, so nothing can be hidden from
an earlier token: there is no causal form. A text of other than n tokens uses the first columns of the matrices.

DISCREPANCY: the paper's theorem draws the matrices from N(0, 1/k). Here they begin as N(0, 1/n), so that a mixture of n
keys is as large as a key, and the scores are as large as attention's, whatever n and k are.

Letters: B rows, T length, C width, H heads, D head_width, K rank, N max_length, M matrices: one, or one for each head.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import NO_RECORD, Context, Properties, Stream
from headwise.errors import UserError


class Summary(nn.Module):
    """E x along the length, E of (K, N): `rank` mixtures of up to `max_length` vectors."""

    def __init__(self, rank: int = 256, max_length: int = 512, matrices: int = 1):
        super().__init__()
        self.max_length = max_length
        self.weight = nn.Parameter(torch.randn(matrices, rank, max_length) * max_length**-0.5)

    def columns(self, length: int) -> Tensor:
        """The weights of the first places: (M, K, N) -> (M, K, T)."""
        if length > self.max_length:
            raise UserError(
                f"linformer: has {self.max_length} positions, too few for {length} tokens; raise its `max_length` or "
                "cut the texts"
            )
        return self.weight[..., :length]

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, H, K, D)"""
        matrices = "kt" if len(self.weight) == 1 else "hkt"
        return torch.einsum(f"{matrices},bhtd->bhkd", self.columns(x.shape[2]).squeeze(0), x)

    def of_text(self, stream: Stream) -> tuple[Tensor, Tensor]:
        """By the one matrix, E X and E 1 of the real tokens: (B, T, C) -> (B, K, C) and (B, K, 1) or (K, 1)."""
        x, matrix = stream.x, self.columns(stream.x.shape[1])[0]  # (1, K, T) -> (K, T)
        if stream.keep is None:
            return torch.einsum("kt,btc->bkc", matrix, x), matrix.sum(-1, keepdim=True)
        real = stream.keep.to(x.dtype).unsqueeze(-1)  # (B, T) -> (B, T, 1)
        return torch.einsum("kt,btc->bkc", matrix, x * real), matrix @ real


class LowRankAttention(QKVMixer):
    """Low-rank attention: softmax(Q (E K)^T / sqrt(D)) (F V) (Wang et al. 2020, eq. 7). Without `values` they have the
    keys' matrix, F = E.

    The map that it implies is softmax(...) F: its rows need not be positive, nor sum to one.

    >>> LowRankAttention(64, heads=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self, width: int, heads: int = 8, *, keys: Summary | None = None, values: Summary | None = None, **settings: Any
    ):
        super().__init__(width, heads, **settings)
        self.keys = keys if keys is not None else Summary()
        self.values = values if values is not None else self.keys

    @property
    def properties(self) -> Properties:
        return Properties(length_free=False)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        one_matrix = len(self.keys.weight) == len(self.values.weight) == 1
        linear = type(self.qkv.project) is nn.Linear and not self.rotate_hooks  # keys are W x + b and nothing else
        if not (one_matrix and linear and ctx.record is NO_RECORD):
            return super().transform(stream, ctx)
        q, keys, values = self.summarised_first(stream)
        mixed = F.scaled_dot_product_attention(q, keys, values)
        return self.out(mixed.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, HD)

    def summarised_first(self, stream: Stream) -> tuple[Tensor, ...]:
        """Q, E K and F V, the latter two as E (X W + 1 b) = (E X) W + (E 1) b: W meets K rows instead of T, and a layer
        takes two thirds of the time at 4,096 tokens."""
        project = self.qkv.project
        bias = project.bias if project.bias is not None else stream.x.new_zeros(len(project.weight))
        (to_q, to_k, to_v), (bias_q, bias_k, bias_v) = project.weight.chunk(3), bias.chunk(3)
        short_k, ones_k = self.keys.of_text(stream)
        short_v, ones_v = (short_k, ones_k) if self.values is self.keys else self.values.of_text(stream)
        rows = (
            F.linear(stream.x, to_q, bias_q),
            F.linear(short_k, to_k) + ones_k * bias_k,
            F.linear(short_v, to_v) + ones_v * bias_v,
        )
        # (B, T, HD) and 2 x (B, K, HD) -> (B, H, T, D) and 2 x (B, H, K, D)
        return tuple(row.unflatten(-1, (self.heads, -1)).transpose(1, 2) for row in rows)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        if stream.keep is not None:
            padding = ~stream.keep[:, None, :, None]  # (B, T) -> (B, 1, T, 1)
            k, v = k.masked_fill(padding, 0.0), v.masked_fill(padding, 0.0)
        keys, values = self.keys(k), self.values(v)
        self.record_map(q, k, v, stream, ctx, lambda: self.implied(q, keys, stream))
        return F.scaled_dot_product_attention(q, keys, values)

    def implied(self, q: Tensor, keys: Tensor, stream: Stream) -> Tensor:
        """What each value counts for each query, (B, H, T, T)."""
        seen = (q @ keys.transpose(-2, -1) * self.head_width**-0.5).softmax(-1)  # (B, H, T, K)
        whole = seen @ self.values.columns(q.shape[2])  # (B, H, T, K) and (M, K, T) -> (B, H, T, T)
        return whole if stream.keep is None else whole.masked_fill(~stream.keep[:, None, None], 0.0)


class LowRankConfig(QKVMixerConfig):
    """`rank` mixtures of up to `max_length` keys and values. Who has matrices of its own (Wang et al. 2020, section 4):

    none       keys and values of every head
    headwise   keys and values of every layer
    key-value  every layer
    layerwise  nobody: all layers of a stack share one
    """

    kind: Literal["linformer"] = "linformer"
    rank: int = Field(256, ge=1)
    max_length: int = Field(512, ge=1)
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "headwise"

    @model_validator(mode="after")
    def _shorter(self) -> LowRankConfig:
        if self.rank > self.max_length:
            raise ValueError(f"a rank of {self.rank} is more than `max_length` = {self.max_length} places; lower it")
        return self

    def build(self, site: BuildContext) -> nn.Module:
        site.must_look_ahead(self.kind)
        arguments = self.resolve_arguments(site)
        make = partial(Summary, self.rank, self.max_length, arguments["heads"] if self.sharing == "none" else 1)
        keys = site.once((self.kind, self.rank, self.max_length), make) if self.sharing == "layerwise" else make()
        values = make() if self.sharing in ("none", "headwise") else keys
        return LowRankAttention(keys=keys, values=values, **arguments)
