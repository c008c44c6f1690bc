"""Product-key memory in the place of a feed-forward network (Lample et al. 2019, "Large Memory Layers with Product
Keys").

A head has two sets of n sub-keys; its n^2 keys are all pairs of them, and the score of a pair is the sum of two scores.
So the k best of n^2 keys are among the k^2 pairs of the k best sub-keys of each set, and 2n scores are computed, not
n^2. The n^2 values are shared by the heads.

Letters: B rows, T length, C width, N = B * T tokens, H heads, n sub-keys, K nearest keys, D key width.

DISCREPANCY: the paper normalises queries by batch norm, Narang et al. 2021 and the package product_key_memory by layer
norm; `query_norm` selects one. In training batch norm lets tokens of a batch depend on each other.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.batchnorm import TokenNorm
from headwise.blocks.norm import LayerNorm
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Part, Properties, Stream

QueryNorm = Literal["batch", "layer", "none"]


class MaskedTokenNorm(TokenNorm):
    """Batch norm over the real tokens of a batch: padding takes no part in its statistics."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        if real is None or not self.training:
            return super().forward(x)
        return torch.zeros_like(x).masked_scatter(real.unsqueeze(-1).expand_as(x), super().forward(x[real]))


class ProductKeyMemory(Part):
    """Product-key memory: y = sum_h sum_i softmax(s_h)_i v_i over the K best keys i of each head h, where the key
    (a, b) has the score q1 . k1_a + q2 . k2_b of the two halves of the head's query, and i = a n + b (section 3)."""

    by_token = True

    def __init__(
        self,
        width: int,
        sub_keys: int = 512,
        heads: int = 4,
        nearest: int = 32,
        key_width: int = 512,
        query_norm: QueryNorm = "batch",
        query_bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.sub_keys, self.heads, self.nearest, self.half_width = sub_keys, heads, nearest, key_width // 2
        self.query = nn.Linear(width, heads * key_width, query_bias)
        # the paper normalises all channels of all heads, Narang et al. the half of each head alone
        self.norm: nn.Module = nn.Identity()
        if query_norm == "batch":
            self.norm = MaskedTokenNorm(heads * key_width)
        elif query_norm == "layer":
            self.norm = LayerNorm(self.half_width)
        self.keys = nn.Parameter(torch.empty(heads, 2, sub_keys, self.half_width))
        nn.init.uniform_(self.keys, -(self.half_width**-0.5), self.half_width**-0.5)
        self.values = nn.EmbeddingBag(sub_keys**2, width, mode="sum")
        nn.init.normal_(self.values.weight, std=width**-0.5)
        self.drop = make_dropout(dropout)

    @property
    def properties(self) -> Properties:
        return Properties(causal=True, steppable=True, joins=True, ragged=True, packing=True)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        queries = self.compute_queries(stream.x, stream.real_mask)  # (B, T, C) -> (H, 2, N, D / 2)
        scores, indices = self.find_nearest(queries)  # 2 x (N, H, K)
        weights = scores.softmax(-1).to(self.values.weight.dtype)
        outputs = self.values(indices.flatten(1), per_sample_weights=weights.flatten(1))  # (N, H * K) -> (N, C)
        return self.drop(outputs).to(stream.x.dtype).view_as(stream.x)

    def compute_queries(self, x: Tensor, real: Tensor | None) -> Tensor:
        """The normalised queries of both halves: (B, T, C) -> (H, 2, N, D / 2)."""
        queries = self.query(x)  # (B, T, C) -> (B, T, H * D)
        if isinstance(self.norm, MaskedTokenNorm):
            queries = self.norm(queries, real)
        queries = queries.reshape(-1, self.heads, 2, self.half_width).permute(1, 2, 0, 3)
        return queries if isinstance(self.norm, MaskedTokenNorm) else self.norm(queries)

    def find_nearest(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """The scores and indices of the K best of n^2 keys, exactly: (H, 2, N, D / 2) -> 2 x (N, H, K)."""
        scores = queries @ self.keys.mT  # (H, 2, N, D / 2) -> (H, 2, N, n)
        best, chosen = scores.topk(min(self.nearest, self.sub_keys))  # 2 x (H, 2, N, k)
        sums = best[:, 0].unsqueeze(-1) + best[:, 1].unsqueeze(-2)  # (H, N, k, k)
        indices = chosen[:, 0].unsqueeze(-1) * self.sub_keys + chosen[:, 1].unsqueeze(-2)
        top, places = sums.flatten(2).topk(self.nearest)  # (H, N, k^2) -> 2 x (H, N, K)
        return top.transpose(0, 1), indices.flatten(2).gather(-1, places).transpose(0, 1)


class ProductKeysConfig(PartConfig):
    """Product-key memory: the `nearest` of `sub_keys`^2 keys of each head, and the weighted sum of their values."""

    kind: Literal["product_keys"] = "product_keys"
    sub_keys: int = Field(512, ge=1)  # of each half: there are sub_keys^2 keys and values
    heads: int = Field(4, ge=1)
    nearest: int = Field(32, ge=1)  # keys whose values are read, for each head
    key_width: int = Field(512, ge=2)  # of a key: half of it for each sub-key
    query_norm: QueryNorm = "batch"  # of queries: batch norm of all channels, or layer norm of each half
    dropout: float = Field(0.0, ge=0, lt=1)  # of the outputs

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.nearest > self.sub_keys**2:
            raise ValueError(
                f"nearest: {self.nearest} keys cannot be chosen among {self.sub_keys}^2 = {self.sub_keys**2}; "
                "lower nearest or raise sub_keys"
            )
        if self.key_width % 2:
            raise ValueError(f"key_width: {self.key_width} cannot be halved for two sub-keys; use an even number")
        return self

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return ProductKeyMemory(
            build_ctx.width,
            self.sub_keys,
            self.heads,
            self.nearest,
            self.key_width,
            self.query_norm,
            build_ctx.mlp_bias,
            self.dropout or build_ctx.hidden_dropout,
        )
