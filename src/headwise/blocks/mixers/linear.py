"""Attention in linear time: a feature map in the place of the softmax (Katharopoulos et al. 2020, eqs. 4-12).

    out_t = phi(q_t) S / phi(q_t) z,    S = sum_s phi(k_s) v_s^T,    z = sum_s phi(k_s)

over all keys, or in a decoder over s <= t, where S and z are the whole state. A 1 behind each value makes z the last
column of S. What phi is, a `FeatureMap` says; `favor.py` has random ones.

The sums go over chunks of the sequence. A chunk's features, several times as many numbers as its queries and keys, are
forgotten at once and made again for its gradient, so that neither pass holds more than one chunk of them.

Letters: B rows, T length, c tokens of a chunk, H heads, D head_width, E = D + 1, M features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Properties, Stream
from headwise.errors import UserError

Factors = tuple[tuple[Tensor, Tensor], ...]  # pairs to be multiplied
CHUNK = 128  # tokens; in a decoder those of a chunk meet one another in a product of c x c
WIDE = 4 * CHUNK  # of an encoder, where they do not


class FeatureMap(ABC):
    """phi of one call, (B, H, T, D) -> (B, H, T, M)."""

    @abstractmethod
    def queries(self, q: Tensor) -> Tensor:
        """phi(q_t), up to a factor of the row's own, which cancels."""

    @abstractmethod
    def keys(self, k: Tensor) -> Tensor:
        """phi(k_s), each without regard to the others."""

    def total(self, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        """S over all keys, (B, H, M, E), up to a factor of the head's own."""
        summed = nothing(self, k, v)
        for part in chunks(k, v, keep, size=WIDE):
            (more,) = products(self._share, *part)
            summed = summed + more
        return summed

    def _share(self, k: Tensor, v: Tensor, keep: Tensor | None) -> Factors:
        return ((self.keys(k).mT, values(v, keep)),)


class Elu(FeatureMap):
    """phi(x) = elu(x) + 1 (eq. 7)."""

    def queries(self, q: Tensor) -> Tensor:
        return F.elu(q.contiguous()) + 1  # (B, H, c, D) from (B, T, 3, H, D): as it is, a product is slow

    def keys(self, k: Tensor) -> Tensor:
        return self.queries(k)


class LinearAttention(QKVMixer):
    """Linear attention: phi(Q) (phi(K)^T V), each row divided by its sum of weights; in a decoder, with a state of
    constant size.

    >>> LinearAttention(64, heads=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    @property
    def properties(self) -> Properties:
        causal = self.causal
        return Properties(causal=causal, steppable=causal, joins=causal, ragged=causal, packing=causal)

    def phi(self) -> FeatureMap:
        """The feature map of one call."""
        return Elu()

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        if stream.segment is not None and not self.causal:
            name = type(self).__name__
            raise UserError(f"packed documents: in an encoder {name} would mix those that share a row; use 'attention'")
        with precise(q):
            phi = self.phi()
            q, k, wide = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
            self.show(q, k, wide, stream, ctx, lambda: self._implied(phi, q, k, stream))
            if not self.causal:
                return everywhere(phi, q, k, wide, stream.keep).to(v.dtype)
            state = ctx.cache.get_state(ctx.path, lambda: nothing(phi, k, wide))
            out, state = onward(phi, q, k, wide, stream, state)
            ctx.cache.put_state(ctx.path, state)
            return out.to(v.dtype)

    def _implied(self, phi: FeatureMap, q: Tensor, k: Tensor, stream: Stream) -> Tensor:
        """The map (B, H, T, T): what comes out where the values are unit vectors."""
        length = q.shape[2]
        units = torch.eye(length, dtype=q.dtype, device=q.device).expand(*q.shape[:2], length, length)
        if self.causal:
            return onward(phi, q, k, units, stream, nothing(phi, k, units))[0]
        return everywhere(phi, q, k, units, stream.keep)


def everywhere(phi: FeatureMap, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    """Every query sees every key: 3 x (B, H, T, D) -> (B, H, T, D)."""
    total = phi.total(k, v, keep)

    def inputs(q: Tensor, total: Tensor) -> Factors:
        return ((phi.queries(q), total),)

    return torch.cat([divided(*products(inputs, part, total)) for (part,) in chunks(q, size=WIDE)], dim=2)


def onward(phi: FeatureMap, q: Tensor, k: Tensor, v: Tensor, stream: Stream, state: Tensor) -> tuple[Tensor, Tensor]:
    """Every query sees the keys up to its own, and those in the state: (B, H, T, D), and the state behind them."""

    def inputs(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, segment: Tensor | None, state: Tensor) -> Factors:
        asked, known, left = phi.queries(q), phi.keys(k), values(v, keep)
        near, far, behind = (asked @ known.mT).tril_(), asked, left  # (B, H, c, c), (B, H, c, M), (B, H, c, E)
        if segment is not None:
            near = near * (segment.unsqueeze(2) == segment.unsqueeze(1)).unsqueeze(1)  # (B, 1, c, c)
            far = far * expand_heads(segment == segment[:, :1])
            behind = left * expand_heads(segment == segment[:, -1:])
        # (B, H, c, c + M) times (B, H, c + M, E): what is in the chunk and what was before it, in one product
        return (torch.cat((near, far), -1), torch.cat((left, state), -2)), (known.mT, behind)

    outs, last = [], None
    for part in chunks(q, k, v, stream.keep, stream.segment):
        segment = part[-1]
        if last is not None:  # where a document begins with a chunk, what was before is forgotten
            state = state * expand_heads(segment[:, :1] == last)
        sums, more = products(inputs, *part, state)
        if segment is not None:
            last = segment[:, -1:]
            state = state * expand_heads(segment[:, :1] == last)
        state = state + more
        outs.append(divided(sums))
    return torch.cat(outs, dim=2), state


def values(v: Tensor, keep: Tensor | None) -> Tensor:
    """Each value with a 1 behind it, zeros where there is padding: (B, H, c, D) -> (B, H, c, E)."""
    v = F.pad(v, (0, 1), value=1.0)
    return v if keep is None else v * expand_heads(keep)


def expand_heads(mask: Tensor) -> Tensor:
    """(B, c) -> (B, 1, c, 1)."""
    return mask[:, None, :, None]


def divided(sums: Tensor) -> Tensor:
    """Numerators by their denominator, zeros where a row sees nothing: (B, H, c, E) -> (B, H, c, D)."""
    below = sums[..., -1:]
    return sums[..., :-1] / (below + (below == 0))


def nothing(phi: FeatureMap, k: Tensor, v: Tensor) -> Tensor:
    """S over no keys: zeros, (B, H, M, E)."""
    return phi.keys(k[:, :, :0]).mT @ values(v[:, :, :0], None)


def chunks(*tensors: Tensor | None, size: int = CHUNK) -> Iterator[tuple[Any, ...]]:
    """The tensors chunk by chunk of the length: (B, H, T, D) or (B, T) each, or None throughout."""
    return zip(
        *(repeat(None) if x is None else x.split(size, dim=2 if x.dim() == 4 else 1) for x in tensors), strict=False
    )


def products(factors: Callable[..., Factors], *given: Any) -> tuple[Tensor, ...]:
    """left @ right of each pair of factors(*given), which are forgotten, and made again for the gradient."""
    if torch.is_grad_enabled():
        return Products.apply(factors, *given)
    return tuple(left @ right for left, right in factors(*given))


class Products(torch.autograd.Function):
    """Cheaper than torch.utils.checkpoint, which would also multiply again, and whose first call imports the compiler
    for more than a second."""

    @staticmethod
    def forward(ctx: Any, factors: Callable[..., Factors], *given: Any) -> tuple[Tensor, ...]:
        ctx.factors, ctx.absent = factors, [x is None for x in given]
        ctx.save_for_backward(*(x for x in given if x is not None))
        return tuple(left @ right for left, right in factors(*given))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved, needs = iter(ctx.saved_tensors), ctx.needs_input_grad[1:]
        given: list[Any] = [None if absent else next(saved).detach() for absent in ctx.absent]
        asking = [x.requires_grad_() for x, needed in zip(given, needs, strict=True) if needed]
        with torch.enable_grad():
            pairs = ctx.factors(*given)
        made, slopes = [], []
        for (left, right), grad in zip(pairs, grads, strict=True):
            if left.requires_grad:
                made.append(left)
                slopes.append(slope(left, right.detach(), grad))
            if right.requires_grad:
                made.append(right)
                slopes.append(left.detach().mT @ grad)
        found = iter(torch.autograd.grad(made, asking, slopes, allow_unused=True))
        return None, *(next(found) if needed else None for needed in needs)


def slope(left: Tensor, right: Tensor, grad: Tensor) -> Tensor:
    """Of a left factor: grad @ right^T, laid out in memory as the factor is."""
    return (right @ grad.mT).mT if left.stride(-2) == 1 else grad @ right.mT


def precise(x: Tensor) -> AbstractContextManager[object]:
    """Sums over a long text, and exponentials, need more bits than autocast's products have."""
    kind = x.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


class LinearConfig(QKVMixerConfig):
    """The linear attention of Katharopoulos et al. (2020)."""

    kind: Literal["linear"] = "linear"

    def build(self, site: BuildContext) -> nn.Module:
        return LinearAttention(**self.frame(site))
