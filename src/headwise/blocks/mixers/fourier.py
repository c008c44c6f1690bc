"""Fourier mixing (Lee-Thorp et al. 2022, "FNet: Mixing Tokens with Fourier Transforms", eq. 3).

DISCREPANCY: paper and released code transform padding with the text, so that outputs depend on the amount of padding.
Here each text is transformed over its own length; without padding there is no difference.

Letters: B rows, T length, C width, K = C // 2 + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import ApproximateMap
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.pool import get_keep
from headwise.blocks.stream import Context, Part, Stream

Groups = list[tuple[Tensor, int]]  # indices of rows of the same length, and that length


class FourierMixing(Part):
    """Fourier mixing: y = Re(F_T x F_C) with F_n[j, k] = exp(-2 pi i j k / n), without parameters. Padding is on the
    right."""

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        x, keep = stream.x, stream.keep
        ctx.record.observe(ctx.path, ApproximateMap(lambda: compute_map(get_keep(stream).squeeze(-1)).to(x.dtype)))
        exact = x.to(torch.promote_types(x.dtype, torch.float32))  # CPUs have no 16-bit FFT
        if keep is None or keep.is_meta:  # on the meta device, padding is unknown
            return Symmetric.apply(exact, transform_2d).to(x.dtype)
        key = ("lengths", id(keep))  # valid as a key because the entry keeps the tensor alive
        groups, _ = ctx.shared.get(key) or ctx.shared.setdefault(key, (group_by_length(keep), keep))
        return Symmetric.apply(exact, partial(transform_by_length, groups=groups)).to(x.dtype)


def transform_2d(x: Tensor) -> Tensor:
    """Re(F_T x F_C) of rows without padding.

    The spectrum of a real signal at (-j, -k) is the conjugate of that at (j, k), so rfft2 and a reflection suffice.
    """
    half = torch.fft.rfft2(x).real  # (B, T, C) -> (B, T, K)
    others = half[..., 1 : (x.shape[-1] + 1) // 2].flip(1, 2).roll(1, 1)  # from (j, k) to (-j, -k)
    return torch.cat((half, others), dim=-1)  # (B, T, K) -> (B, T, C)


def transform_by_length(x: Tensor, groups: Groups) -> Tensor:
    """Transform each text over its own length; zeros for padding."""
    out = torch.zeros_like(x)
    for rows, length in groups:
        out[rows, :length] = transform_2d(x[rows, :length])
    return out


def group_by_length(keep: Tensor) -> Groups:
    """The rows of a batch by length, without empty ones."""
    rows: dict[int, list[int]] = {}
    for row, length in enumerate(keep.sum(1).tolist()):
        rows.setdefault(length, []).append(row)
    return [(torch.tensor(rows[length], device=keep.device), length) for length in sorted(rows) if length]


def compute_map(keep: Tensor) -> Tensor:
    """The map of tokens, Re F_T = cos(2 pi j k / T), which has negative weights: (B, T) -> (B, 1, T, T)."""
    lengths = keep.sum(1).clamp(min=1)[:, None, None]
    index = torch.arange(keep.shape[1], device=keep.device)
    turns = index.unsqueeze(-1) * index % lengths / lengths  # modulo in integers keeps phases exact in long texts
    return ((2 * math.pi * turns).cos() * keep.unsqueeze(-1) * keep.unsqueeze(-2)).unsqueeze(1)


class Symmetric(torch.autograd.Function):
    """A symmetric linear map: its backward pass is the map itself, and nothing is saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.function = function
        return function(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Symmetric.apply(grad, ctx.function), None


class FourierConfig(PartConfig):
    """Fourier mixing: the real part of an FFT along tokens and channels (Lee-Thorp et al. 2022)."""

    kind: Literal["fourier"] = "fourier"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        return FourierMixing()
