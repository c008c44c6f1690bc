"""Linear attention: a kernel feature map phi in place of the softmax (Katharopoulos et al. 2020, "Transformers are
RNNs", eqs. 4-12).

    out_t = phi(q_t) S / phi(q_t) z,    S = sum_s phi(k_s) v_s^T,    z = sum_s phi(k_s)

over all keys, or in a decoder over s <= t, where the prefix sums S and z are the whole decoding state. A 1 appended to
each value makes z the last column of S. `FeatureMap` is phi; `favor.py` has random ones.

The sums are computed in chunks of the sequence. The features of a chunk, several times as large as its queries and
keys, are discarded and recomputed in the backward pass, so that neither pass holds more than one chunk of them.

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

Factors = tuple[tuple[Tensor, Tensor], ...]  # pairs of matrices to multiply
CHUNK = 128  # tokens of a decoder's chunk, which computes a c x c matrix
ENCODER_CHUNK = 4 * CHUNK  # an encoder has no such matrix


class FeatureMap(ABC):
    """The feature map phi of one forward pass, (B, H, T, D) -> (B, H, T, M)."""

    @abstractmethod
    def map_queries(self, q: Tensor) -> Tensor:
        """phi(q_t), up to a factor of each query, which cancels."""

    @abstractmethod
    def map_keys(self, k: Tensor) -> Tensor:
        """phi(k_s), each independent of other keys."""

    def sum_keys(self, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        """S over all keys, (B, H, M, E), up to a factor of each head."""
        total = init_state(self, k, v)
        for chunk in split_chunks(k, v, keep, size=ENCODER_CHUNK):
            (chunk_sum,) = multiply(self._chunk_factors, *chunk)
            total = total + chunk_sum
        return total

    def _chunk_factors(self, k: Tensor, v: Tensor, keep: Tensor | None) -> Factors:
        return ((self.map_keys(k).mT, append_ones(v, keep)),)


class EluFeatures(FeatureMap):
    """phi(x) = elu(x) + 1 (eq. 7)."""

    def map_queries(self, q: Tensor) -> Tensor:
        return F.elu(q.contiguous()) + 1  # a view of (B, T, 3, H, D), with which products are slow

    def map_keys(self, k: Tensor) -> Tensor:
        return self.map_queries(k)


class LinearAttention(QKVMixer):
    """Linear attention: phi(Q) (phi(K)^T V), each row divided by its sum of weights. A decoder's state has constant
    size.

    >>> LinearAttention(64, heads=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    @property
    def properties(self) -> Properties:
        causal = self.causal
        return Properties(causal=causal, steppable=causal, joins=causal, ragged=causal, packing=causal)

    def build_feature_map(self) -> FeatureMap:
        """The feature map of one forward pass."""
        return EluFeatures()

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        if stream.segment is not None and not self.causal:
            name = type(self).__name__
            raise UserError(f"packed documents: in an encoder {name} would mix those that share a row; use 'attention'")
        with disable_autocast(q):
            phi = self.build_feature_map()
            q, k, values = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
            self.record_map(q, k, values, stream, ctx, lambda: self._compute_map(phi, q, k, stream))
            if not self.causal:
                return attend_all(phi, q, k, values, stream.keep).to(v.dtype)
            state = ctx.cache.get_state(ctx.path, lambda: init_state(phi, k, values))
            out, state = attend_causally(phi, q, k, values, stream, state)
            ctx.cache.put_state(ctx.path, state)
            return out.to(v.dtype)

    def _compute_map(self, phi: FeatureMap, q: Tensor, k: Tensor, stream: Stream) -> Tensor:
        """The attention map (B, H, T, T): the outputs for unit vectors as values."""
        length = q.shape[2]
        units = torch.eye(length, dtype=q.dtype, device=q.device).expand(*q.shape[:2], length, length)
        if self.causal:
            return attend_causally(phi, q, k, units, stream, init_state(phi, k, units))[0]
        return attend_all(phi, q, k, units, stream.keep)


def attend_all(phi: FeatureMap, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    """Linear attention of every query to every key: 3 x (B, H, T, D) -> (B, H, T, D)."""
    total = phi.sum_keys(k, v, keep)

    def compute_factors(q: Tensor, total: Tensor) -> Factors:
        return ((phi.map_queries(q), total),)

    chunks = split_chunks(q, size=ENCODER_CHUNK)
    return torch.cat([normalise(*multiply(compute_factors, chunk, total)) for (chunk,) in chunks], dim=2)


def attend_causally(
    phi: FeatureMap, q: Tensor, k: Tensor, v: Tensor, stream: Stream, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Causal linear attention by prefix sums: outputs (B, H, T, D), and the state (B, H, M, E) after the last key.
    `state` is the sum over earlier keys."""

    def compute_factors(
        q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, segment: Tensor | None, state: Tensor
    ) -> Factors:
        queries, keys, values = phi.map_queries(q), phi.map_keys(k), append_ones(v, keep)
        scores, to_state, to_next = (queries @ keys.mT).tril_(), queries, values  # (B, H, c, c), (.., c, M), (.., c, E)
        if segment is not None:
            scores = scores * (segment.unsqueeze(2) == segment.unsqueeze(1)).unsqueeze(1)  # (B, 1, c, c)
            to_state = to_state * expand_heads(segment == segment[:, :1])
            to_next = values * expand_heads(segment == segment[:, -1:])
        # (B, H, c, c + M) times (B, H, c + M, E): keys of the chunk and the prefix sum before it, in one product
        return (torch.cat((scores, to_state), -1), torch.cat((values, state), -2)), (keys.mT, to_next)

    outs, last = [], None
    for chunk in split_chunks(q, k, v, stream.keep, stream.segment):
        segment = chunk[-1]
        if last is not None:  # drop the sum where a packed document starts with the chunk
            state = state * expand_heads(segment[:, :1] == last)
        sums, chunk_sum = multiply(compute_factors, *chunk, state)
        if segment is not None:
            last = segment[:, -1:]
            state = state * expand_heads(segment[:, :1] == last)
        state = state + chunk_sum
        outs.append(normalise(sums))
    return torch.cat(outs, dim=2), state


def append_ones(v: Tensor, keep: Tensor | None) -> Tensor:
    """Values with a 1 appended, whose sum is the denominator; zeros for padding: (B, H, c, D) -> (B, H, c, E)."""
    v = F.pad(v, (0, 1), value=1.0)
    return v if keep is None else v * expand_heads(keep)


def expand_heads(mask: Tensor) -> Tensor:
    """(B, c) -> (B, 1, c, 1)."""
    return mask[:, None, :, None]


def normalise(sums: Tensor) -> Tensor:
    """Divide by the sum of weights, the last column; zeros for rows without keys: (B, H, c, E) -> (B, H, c, D)."""
    denominator = sums[..., -1:]
    return sums[..., :-1] / (denominator + (denominator == 0))


def init_state(phi: FeatureMap, k: Tensor, v: Tensor) -> Tensor:
    """S over no keys: zeros, (B, H, M, E)."""
    return phi.map_keys(k[:, :, :0]).mT @ append_ones(v[:, :, :0], None)


def split_chunks(*tensors: Tensor | None, size: int = CHUNK) -> Iterator[tuple[Any, ...]]:
    """The tensors, (B, H, T, D), (B, T) or None, in chunks along the length."""
    return zip(
        *(repeat(None) if x is None else x.split(size, dim=2 if x.dim() == 4 else 1) for x in tensors), strict=False
    )


def multiply(compute_factors: Callable[..., Factors], *arguments: Any) -> tuple[Tensor, ...]:
    """left @ right of each pair of compute_factors(*arguments), which are recomputed in the backward pass."""
    if torch.is_grad_enabled():
        return RecomputedProducts.apply(compute_factors, *arguments)
    return tuple(left @ right for left, right in compute_factors(*arguments))


class RecomputedProducts(torch.autograd.Function):
    """Gradient checkpointing of the factors alone. torch.utils.checkpoint would recompute the products as well, and its
    first call imports the compiler, which takes more than a second."""

    @staticmethod
    def forward(ctx: Any, compute_factors: Callable[..., Factors], *arguments: Any) -> tuple[Tensor, ...]:
        ctx.compute_factors, ctx.absent = compute_factors, [x is None for x in arguments]
        ctx.save_for_backward(*(x for x in arguments if x is not None))
        return tuple(left @ right for left, right in compute_factors(*arguments))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved, needs = iter(ctx.saved_tensors), ctx.needs_input_grad[1:]
        arguments: list[Any] = [None if absent else next(saved).detach() for absent in ctx.absent]
        inputs = [x.requires_grad_() for x, needed in zip(arguments, needs, strict=True) if needed]
        with torch.enable_grad():
            pairs = ctx.compute_factors(*arguments)
        factors, factor_grads = [], []
        for (left, right), grad in zip(pairs, grads, strict=True):
            if left.requires_grad:
                factors.append(left)
                factor_grads.append(compute_left_grad(left, right.detach(), grad))
            if right.requires_grad:
                factors.append(right)
                factor_grads.append(left.detach().mT @ grad)
        input_grads = iter(torch.autograd.grad(factors, inputs, factor_grads, allow_unused=True))
        return None, *(next(input_grads) if needed else None for needed in needs)


def compute_left_grad(left: Tensor, right: Tensor, grad: Tensor) -> Tensor:
    """The gradient of a left factor, grad @ right^T, in the memory layout of the factor."""
    return (right @ grad.mT).mT if left.stride(-2) == 1 else grad @ right.mT


def disable_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Sums over a long text, and exponentials, need more precision than autocast's products have."""
    kind = x.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


class LinearConfig(QKVMixerConfig):
    """Linear attention (Katharopoulos et al. 2020)."""

    kind: Literal["linear"] = "linear"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return LinearAttention(**self.resolve_arguments(build_ctx))
