"""Linformer attention (Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity").

A learned projection along the length maps n keys and n values to k each; the softmax is over these k, so time and
memory are O(n k) instead of O(n^2). Each of the k is a mixture of all tokens, so there is no causal form. A text
shorter than n uses the first columns of the matrices.

DISCREPANCY: the paper's theorem draws the matrices from N(0, 1/k). Here they are initialised with N(0, 1/n), so that
projected keys, and the scores, have the scale of attention's, whatever n and k are.

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


class LengthProjection(nn.Module):
    """Linear projection along the length: E x with E (K, N), `rank` mixtures of up to `max_length` vectors."""

    def __init__(self, rank: int = 256, max_length: int = 512, matrices: int = 1):
        super().__init__()
        self.max_length = max_length
        self.weight = nn.Parameter(torch.randn(matrices, rank, max_length) * max_length**-0.5)

    def get_columns(self, length: int) -> Tensor:
        """The first columns: (M, K, N) -> (M, K, T)."""
        if length > self.max_length:
            raise UserError(
                f"linformer: has {self.max_length} positions, too few for {length} tokens; raise its `max_length` or "
                "cut the texts"
            )
        return self.weight[..., :length]

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, H, K, D)"""
        matrices = "kt" if len(self.weight) == 1 else "hkt"
        return torch.einsum(f"{matrices},bhtd->bhkd", self.get_columns(x.shape[2]).squeeze(0), x)

    def project_stream(self, stream: Stream) -> tuple[Tensor, Tensor]:
        """E X and E 1 of the real tokens, for a single matrix: (B, T, C) -> (B, K, C) and (B, K, 1) or (K, 1)."""
        x, matrix = stream.x, self.get_columns(stream.x.shape[1])[0]  # (1, K, T) -> (K, T)
        if stream.keep is None:
            return torch.einsum("kt,btc->bkc", matrix, x), matrix.sum(-1, keepdim=True)
        real = stream.keep.to(x.dtype).unsqueeze(-1)  # (B, T) -> (B, T, 1)
        return torch.einsum("kt,btc->bkc", matrix, x * real), matrix @ real


class LowRankAttention(QKVMixer):
    """Low-rank attention: softmax(Q (E K)^T / sqrt(D)) (F V) (Wang et al. 2020, eq. 7). Without `values`,
    F = E.

    Its attention map is softmax(...) F, whose rows need not be positive, nor sum to one.

    >>> LowRankAttention(64, heads=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        keys: LengthProjection | None = None,
        values: LengthProjection | None = None,
        **settings: Any,
    ):
        super().__init__(width, heads, **settings)
        self.keys = keys if keys is not None else LengthProjection()
        self.values = values if values is not None else self.keys

    @property
    def properties(self) -> Properties:
        return Properties(length_free=False)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        one_matrix = len(self.keys.weight) == len(self.values.weight) == 1
        linear = type(self.qkv.project) is nn.Linear and not self.qk_edits  # keys are W x + b and nothing else
        if not (one_matrix and linear and ctx.record is NO_RECORD):
            return super().transform(stream, ctx)
        q, keys, values = self.project_before_qkv(stream)
        mixed = F.scaled_dot_product_attention(q, keys, values)
        return self.out(mixed.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, HD)

    def project_before_qkv(self, stream: Stream) -> tuple[Tensor, ...]:
        """Q, E K and F V, the latter two as E (X W + 1 b) = (E X) W + (E 1) b: W multiplies K rows instead of T, and a
        layer takes two thirds of the time at 4,096 tokens."""
        project = self.qkv.project
        bias = project.bias if project.bias is not None else stream.x.new_zeros(len(project.weight))
        (to_q, to_k, to_v), (bias_q, bias_k, bias_v) = project.weight.chunk(3), bias.chunk(3)
        projected_k, ones_k = self.keys.project_stream(stream)
        projected_v, ones_v = (projected_k, ones_k) if self.values is self.keys else self.values.project_stream(stream)
        qkv = (
            F.linear(stream.x, to_q, bias_q),
            F.linear(projected_k, to_k) + ones_k * bias_k,
            F.linear(projected_v, to_v) + ones_v * bias_v,
        )
        # (B, T, HD) and 2 x (B, K, HD) -> (B, H, T, D) and 2 x (B, H, K, D)
        return tuple(x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in qkv)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        if stream.keep is not None:
            padding = ~stream.keep[:, None, :, None]  # (B, T) -> (B, 1, T, 1)
            k, v = k.masked_fill(padding, 0.0), v.masked_fill(padding, 0.0)
        keys, values = self.keys(k), self.values(v)
        self.record_map(q, k, v, stream, ctx, lambda: self.compute_map(q, keys, stream))
        return F.scaled_dot_product_attention(q, keys, values)

    def compute_map(self, q: Tensor, keys: Tensor, stream: Stream) -> Tensor:
        """The attention map, the weight of each value for each query: (B, H, T, T)."""
        weights = (q @ keys.transpose(-2, -1) * self.head_width**-0.5).softmax(-1)  # (B, H, T, K)
        full = weights @ self.values.get_columns(q.shape[2])  # (B, H, T, K) and (M, K, T) -> (B, H, T, T)
        return full if stream.keep is None else full.masked_fill(~stream.keep[:, None, None], 0.0)


class LowRankConfig(QKVMixerConfig):
    """Linformer attention: keys and values projected from up to `max_length` to `rank`. Sharing of the matrices (Wang
    et al. 2020, section 4):

    none       a matrix for keys and one for values of every head
    headwise   a matrix for keys and one for values of every layer
    key-value  a matrix for every layer
    layerwise  one matrix for all layers of a stack
    """

    kind: Literal["linformer"] = "linformer"
    rank: int = Field(256, ge=1)
    max_length: int = Field(512, ge=1)
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "headwise"

    @model_validator(mode="after")
    def _check_rank(self) -> LowRankConfig:
        if self.rank > self.max_length:
            raise ValueError(f"a rank of {self.rank} exceeds `max_length` = {self.max_length}; lower it")
        return self

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        arguments = self.resolve_arguments(build_ctx)
        build = partial(
            LengthProjection, self.rank, self.max_length, arguments["heads"] if self.sharing == "none" else 1
        )
        keys = (
            build_ctx.build_once((self.kind, self.rank, self.max_length), build)
            if self.sharing == "layerwise"
            else build()
        )
        values = build() if self.sharing in ("none", "headwise") else keys
        return LowRankAttention(keys=keys, values=values, **arguments)
