"""Tokens mixed by a Fourier transform (Lee-Thorp et al. 2022, "FNet: Mixing Tokens with Fourier Transforms", eq. 3).

DISCREPANCY: paper and released code transform padding with the text, so that what a text gives depends on how far it
is padded. Here each text is transformed over its own length; without padding there is no difference.

Letters: B rows, T length, C width, K = C // 2 + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.blocks import pool
from headwise.blocks.attention.score_mods import ApproximateMap
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Part, Stream

Groups = list[tuple[Tensor, int]]  # rows of one length, and that length


class FourierMixing(Part):
    """Fourier mixing: y = Re(F_T x F_C), F_n[j, k] = exp(-2 pi i j k / n): nothing to learn. Padding is right."""

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        x, keep = stream.x, stream.keep
        ctx.record.observe(ctx.path, ApproximateMap(lambda: cosines(pool.real(stream).squeeze(-1)).to(x.dtype)))
        exact = x.to(torch.promote_types(x.dtype, torch.float32))  # there is no FFT of 16-bit numbers on CPUs
        if keep is None or keep.is_meta:  # what has no contents has no padding
            return Symmetric.apply(exact, mixed).to(x.dtype)
        key = ("lengths", id(keep))  # valid as a key because the entry keeps the tensor alive
        groups, _ = ctx.shared.get(key) or ctx.shared.setdefault(key, (grouped(keep), keep))
        return Symmetric.apply(exact, partial(mixed_apart, groups=groups)).to(x.dtype)


def mixed(x: Tensor) -> Tensor:
    """Re(F_T x F_C) of rows without padding.

    A real signal's frequencies (-j, -k) are the conjugates of (j, k): the first K of the channels give the others.
    """
    found = torch.fft.rfft2(x).real  # (B, T, C) -> (B, T, K)
    others = found[..., 1 : (x.shape[-1] + 1) // 2].flip(1, 2).roll(1, 1)  # from (j, k) to (-j, -k)
    return torch.cat((found, others), dim=-1)  # (B, T, K) -> (B, T, C)


def mixed_apart(x: Tensor, groups: Groups) -> Tensor:
    """Every text over its own length; zeros at the padding."""
    out = torch.zeros_like(x)
    for rows, length in groups:
        out[rows, :length] = mixed(x[rows, :length])
    return out


def grouped(keep: Tensor) -> Groups:
    """The rows of a batch by length, empty ones left out."""
    rows: dict[int, list[int]] = {}
    for row, length in enumerate(keep.sum(1).tolist()):
        rows.setdefault(length, []).append(row)
    return [(torch.tensor(rows[length], device=keep.device), length) for length in sorted(rows) if length]


def cosines(keep: Tensor) -> Tensor:
    """How tokens count for each other: Re F_T = cos(2 pi j k / T), with signs, (B, T) -> (B, 1, T, T)."""
    lengths = keep.sum(1).clamp(min=1)[:, None, None]
    places = torch.arange(keep.shape[1], device=keep.device)
    turns = places.unsqueeze(-1) * places % lengths / lengths  # whole numbers first: no phase is lost in a long text
    return ((2 * math.pi * turns).cos() * keep.unsqueeze(-1) * keep.unsqueeze(-2)).unsqueeze(1)


class Symmetric(torch.autograd.Function):
    """A real linear map that is its own transpose: what it does to x it does to gradients, and nothing is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.function = function
        return function(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Symmetric.apply(grad, ctx.function), None


class FourierConfig(PartConfig):
    """Re FFT along tokens and channels: nothing to learn, nothing to set."""

    kind: Literal["fourier"] = "fourier"

    def build(self, site: BuildContext) -> nn.Module:
        site.must_look_ahead(self.kind)
        return FourierMixing()
