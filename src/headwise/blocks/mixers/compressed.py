"""Memory-compressed attention (Liu et al. 2018, section 4.2.4): queries of all tokens, keys and values of fewer.

The first token is also seen as it is, since otherwise the first few of a decoder would see nothing; and there a group
of tokens is seen by those behind it alone, as in tensor2tensor.

DISCREPANCY: tensor2tensor convolves the inputs of a layer over all channels and then makes keys and values of them.
The paper does it the other way round, and so do we, each head for itself. A bias would add nothing to those that keys
and values have.

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
    """softmax(Q conv(K)^T / sqrt(D)) conv(V) with convolutions of kernel and stride `factor`: n^2 / factor scores.

    They begin as means of their tokens, so that weights of exact attention are a good start.
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
        both = torch.stack((k, v), 1)  # (B, 2, H, T, D)
        if stream.keep is not None:
            both = both * stream.keep[:, None, None, :, None]
        start = (*ctx.path, "first")
        first = ctx.cache.state(start, lambda: both[..., :1, :])
        ctx.cache.put(start, first)
        packed, length = self._packed(both, ctx)
        keys, values = torch.cat((first, packed), 3).unbind(1)  # 2 x (B, H, 1 + M, D)
        seen = self._seen(stream, keys.shape[2], length)
        self.record_map(q, k, v, stream, ctx, lambda: self._map(q, keys, seen, length))
        return functional.scaled_dot_product_attention(q, keys, values, seen)

    def _packed(self, both: Tensor, ctx: Context) -> tuple[Tensor, int]:
        """Keys and values of all groups so far, (B, 2, H, M, D), and the number of tokens so far."""
        rest = ctx.cache.state(ctx.path, lambda: both[..., :0, :])
        both = torch.cat((rest, both), 3)
        padding = 0 if self.causal else -both.shape[3] % self.factor  # of a last group that nothing will complete
        both = functional.pad(both, (0, 0, 0, padding))
        groups = both.shape[3] // self.factor
        whole, rest = both.split((groups * self.factor, both.shape[3] - groups * self.factor), 3)
        ctx.cache.put(ctx.path, rest)
        whole = whole.unflatten(3, (groups, self.factor)).flatten(4)  # (B, 2, H, MF, D) -> (B, 2, H, M, FD)
        (packed,) = ctx.cache.extend(ctx.path, 3, whole @ self.shrink)
        return packed, packed.shape[3] * self.factor + rest.shape[3] - padding

    def _seen(self, stream: Stream, slots: int, length: int) -> Tensor | None:
        """True = seen, broadcastable with (B, H, T, 1 + M). Behind the causal mask there is no padding to hide."""
        tokens, device = stream.x.shape[1], stream.x.device
        if self.causal:
            places = torch.arange(length - tokens, length, device=device)
            seen = torch.arange(slots, device=device) * self.factor <= places.unsqueeze(1)  # (T, 1 + M)
            return seen if stream.segment is None else (seen & self._same(stream.segment, slots)).unsqueeze(1)
        if stream.keep is None:
            return None
        groups = functional.pad(stream.keep, (0, -tokens % self.factor)).unflatten(1, (-1, self.factor))
        return torch.cat((stream.keep[:, :1], groups.any(2)), 1)[:, None, None]  # (B, 1 + M) -> (B, 1, 1, 1 + M)

    def _same(self, segment: Tensor, slots: int) -> Tensor:
        """Whether all tokens of a group are of the query's document, (B, T, 1 + M)."""
        groups = segment[:, : (slots - 1) * self.factor].unflatten(1, (slots - 1, self.factor))
        first, last = (torch.cat((segment[:, :1], groups[..., end]), 1).unsqueeze(1) for end in (0, -1))
        own = segment.unsqueeze(2)
        return (first == own) & (last == own)

    def _map(self, q: Tensor, keys: Tensor, seen: Tensor | None, length: int) -> Tensor:
        """The weight of a group shared evenly among its tokens, (B, H, T, tokens so far)."""
        scores = q @ keys.mT * self.head_width**-0.5
        weights = (scores if seen is None else scores.masked_fill(~seen, torch.finfo(scores.dtype).min)).softmax(-1)
        first, groups = weights.split((1, weights.shape[3] - 1), 3)
        spread = (groups / self.factor).repeat_interleave(self.factor, 3)[..., :length]
        spread = functional.pad(spread, (0, length - spread.shape[3]))
        spread[..., :1] += first
        return spread


class CompressedConfig(QKVMixerConfig):
    """Keys and values of `factor` tokens each become one."""

    kind: Literal["compressed"] = "compressed"
    factor: int = Field(3, ge=1)

    def build(self, site: BuildContext) -> nn.Module:
        return CompressedAttention(self.factor, **self.resolve_arguments(site))
