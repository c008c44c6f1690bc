"""Depthwise convolution along the tokens: centred in an encoder, causal in a decoder, which stores the last inputs.

Letters: B rows, T length, C width, H kernels, R channels of a kernel, K taps of a kernel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.blocks.stream import Context, Properties, Stream
from headwise.errors import UserError


def check_kernel(kernel: int, causal: bool, kind: str) -> None:
    """Refuse an even kernel in an encoder, where it has no centre."""
    if not causal and kernel % 2 == 0:
        raise UserError(f"{kind}: a kernel of {kernel} tokens has no centre in an encoder; use an odd number")


def get_convolution_properties(causal: bool) -> Properties:
    """The properties of a convolution: its decoding state has a fixed size and forgets."""
    return Properties(causal=causal, steppable=causal, joins=causal, ragged=causal, packing=True, unbounded=causal)


def convolve_depthwise(x: Tensor, kernels: Tensor, causal: bool, stream: Stream, ctx: Context) -> Tensor:
    """y_t = sum_k w_k * x_{t + k - offset}: (B, T, C) -> (B, T, C), where the offset is K - 1 in a decoder and
    (K - 1) / 2 in an encoder.

    `kernels` is (H, K), or (B, T, H, K) with a kernel for each token; R = C / H channels share one. Padding counts as
    zeros, and so do the tokens of other packed documents.
    """
    taps = kernels.shape[-1]
    windows = extend_with_neighbours(x, taps, causal, stream, ctx).unflatten(-1, (kernels.shape[-2], -1))
    if stream.segment is not None:
        kernels = kernels * build_segment_mask(stream.segment, taps, causal).unsqueeze(2)  # (B, T, 1, K)
    length, kernels = x.shape[1], kernels.unsqueeze(-1)  # (..., H, K) -> (..., H, K, 1)
    out = kernels[..., 0, :] * windows[:, :length]  # (B, T, H, R)
    for tap in range(1, taps):  # a few passes over memory; unfolded windows would need K times as much of it
        out = torch.addcmul(out, kernels[..., tap, :], windows[:, tap : tap + length])
    return out.flatten(2)


def extend_with_neighbours(x: Tensor, taps: int, causal: bool, stream: Stream, ctx: Context) -> Tensor:
    """Inputs with the K - 1 further ones that kernels read, (B, T + K - 1, C): zeros, or in a decoder the last real
    inputs of earlier calls, which are stored in the cache."""
    if stream.keep is not None:
        x = x.masked_fill(~stream.keep.unsqueeze(-1), 0.0)
    others = taps - 1
    if not causal or not others:
        return F.pad(x, (0, 0, others // 2, others // 2)) if others else x
    before = ctx.cache.get_state(ctx.path, lambda: x.new_zeros(x.shape[0], others, x.shape[-1]))
    extended = torch.cat((before, x), dim=1)
    ctx.cache.put_state(ctx.path, take_last_real(extended, others, stream.keep))
    return extended


def take_last_real(extended: Tensor, count: int, keep: Tensor | None) -> Tensor:
    """The last `count` real inputs of each row, (B, count, C); `keep` (B, T) is the mask of the last T."""
    if keep is None:
        return extended[:, -count:]
    columns = keep.sum(1, keepdim=True) + torch.arange(count, device=keep.device)  # (B, count)
    return extended.take_along_dim(columns.unsqueeze(-1), 1)


def build_segment_mask(segment: Tensor, taps: int, causal: bool) -> Tensor:
    """Which inputs of its window are of a token's own packed document: (B, T) -> (B, T, K)."""
    left = taps - 1 if causal else taps // 2
    windows = F.pad(segment, (left, taps - 1 - left), value=-1).unfold(1, taps, 1)
    return windows == segment.unsqueeze(-1)
