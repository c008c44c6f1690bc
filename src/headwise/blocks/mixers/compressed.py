"""Memory-compressed attention (Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", section 4.2.4):
strided convolutions shorten keys and values.

The first token is also a key of its own, since otherwise the first few tokens of a decoder would have no key; and there
a group of tokens is visible to later tokens only, as in tensor2tensor.

DISCREPANCY: tensor2tensor convolves the inputs of a layer over all channels and then projects them to keys and values.
The paper convolves keys and values, and so do we, each head separately. A bias would be redundant with those of keys
and values.

Letters: B rows, T tokens, H heads, D head_width, F tokens of a group, M groups.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as functional
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Properties, Stream


class CompressedAttention(QKVMixer):
    """softmax(Q conv(K)^T / sqrt(D)) conv(V) with convolutions of kernel size and stride `factor`: n^2 / factor scores.

    Convolutions are initialised as means of their tokens, so that weights of exact attention are a good start.
    """

    def __init__(self, factor: int = 3, **settings: Any):
        super().__init__(**settings)
        self.factor = factor
        mean = torch.eye(self.head_width).repeat(factor, 1) / factor  # (FD, D)
        self.shrink = nn.Parameter(mean.repeat(2, self.heads, 1, 1))  # of keys and of values, (2, H, FD, D)

    @property
    def properties(self) -> Properties:
        return Properties(causal=self.causal, steppable=self.causal, packing=self.causal)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        keys_values = torch.stack((k, v), 1)  # (B, 2, H, T, D)
        if stream.keep is not None:
            keys_values = keys_values * stream.keep[:, None, None, :, None]
        first_path = (*ctx.path, "first")
        first = ctx.cache.get_state(first_path, lambda: keys_values[..., :1, :])
        ctx.cache.put_state(first_path, first)
        compressed, length = self._compress(keys_values, ctx)
        keys, values = torch.cat((first, compressed), 3).unbind(1)  # 2 x (B, H, 1 + M, D)
        visible = self._build_mask(stream, keys.shape[2], length)
        self.record_map(q, k, v, stream, ctx, lambda: self._compute_map(q, keys, visible, length))
        return functional.scaled_dot_product_attention(q, keys, values, visible)

    def _compress(self, keys_values: Tensor, ctx: Context) -> tuple[Tensor, int]:
        """Keys and values of all groups so far, (B, 2, H, M, D), and the number of tokens so far."""
        rest = ctx.cache.get_state(ctx.path, lambda: keys_values[..., :0, :])
        keys_values = torch.cat((rest, keys_values), 3)
        padding = 0 if self.causal else -keys_values.shape[3] % self.factor  # the last group of an encoder
        keys_values = functional.pad(keys_values, (0, 0, 0, padding))
        groups = keys_values.shape[3] // self.factor
        complete, rest = keys_values.split((groups * self.factor, keys_values.shape[3] - groups * self.factor), 3)
        ctx.cache.put_state(ctx.path, rest)
        complete = complete.unflatten(3, (groups, self.factor)).flatten(4)  # (B, 2, H, MF, D) -> (B, 2, H, M, FD)
        (compressed,) = ctx.cache.extend(ctx.path, 3, complete @ self.shrink)
        return compressed, compressed.shape[3] * self.factor + rest.shape[3] - padding

    def _build_mask(self, stream: Stream, slots: int, length: int) -> Tensor | None:
        """True = visible, broadcasts to (B, H, T, 1 + M). The causal mask covers padding on the right."""
        tokens, device = stream.x.shape[1], stream.x.device
        if self.causal:
            queries = torch.arange(length - tokens, length, device=device)
            visible = torch.arange(slots, device=device) * self.factor <= queries.unsqueeze(1)  # (T, 1 + M)
            if stream.segment is None:
                return visible
            return (visible & self._is_same_document(stream.segment, slots)).unsqueeze(1)
        if stream.keep is None:
            return None
        groups = functional.pad(stream.keep, (0, -tokens % self.factor)).unflatten(1, (-1, self.factor))
        return torch.cat((stream.keep[:, :1], groups.any(2)), 1)[:, None, None]  # (B, 1 + M) -> (B, 1, 1, 1 + M)

    def _is_same_document(self, segment: Tensor, slots: int) -> Tensor:
        """Whether all tokens of a group belong to the query's document, (B, T, 1 + M)."""
        groups = segment[:, : (slots - 1) * self.factor].unflatten(1, (slots - 1, self.factor))
        first, last = (torch.cat((segment[:, :1], groups[..., end]), 1).unsqueeze(1) for end in (0, -1))
        query = segment.unsqueeze(2)
        return (first == query) & (last == query)

    def _compute_map(self, q: Tensor, keys: Tensor, visible: Tensor | None, length: int) -> Tensor:
        """The attention map (B, H, T, tokens so far): the weight of a group divided evenly among its tokens."""
        scores = q @ keys.mT * self.head_width**-0.5
        if visible is not None:
            scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        first, groups = weights.split((1, weights.shape[3] - 1), 3)
        token_weights = (groups / self.factor).repeat_interleave(self.factor, 3)[..., :length]
        token_weights = functional.pad(token_weights, (0, length - token_weights.shape[3]))
        token_weights[..., :1] += first
        return token_weights


class CompressedConfig(QKVMixerConfig):
    """Memory-compressed attention: one key and value for `factor` tokens (Liu et al. 2018)."""

    kind: Literal["compressed"] = "compressed"
    factor: int = Field(3, ge=1)

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return CompressedAttention(self.factor, **self.resolve_arguments(build_ctx))
