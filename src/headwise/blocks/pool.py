"""Pooling: one vector per text from the vectors of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from headwise.blocks.stream import Stream
from headwise.errors import UserError, nearest


def get_keep(stream: Stream) -> Tensor:
    """True = real token, (B, T, 1)."""
    keep = stream.keep if stream.keep is not None else torch.ones_like(stream.x[..., 0], dtype=torch.bool)
    return keep.unsqueeze(-1)


def mean_pool(stream: Stream) -> Tensor:
    """Mean of the vectors of real tokens; zeros for a text without any."""
    keep = get_keep(stream)
    return (stream.x * keep).sum(1) / keep.sum(1).clamp(min=1)


def max_pool(stream: Stream) -> Tensor:
    """Maximum of each channel over real tokens; zeros for a text without any."""
    if not stream.x.shape[1]:
        return stream.x.sum(1)
    keep = get_keep(stream)
    highest = stream.x.masked_fill(~keep, torch.finfo(stream.x.dtype).min).amax(1)
    return highest.masked_fill(~keep.any(1), 0.0)


def take_first(stream: Stream) -> Tensor:
    """Vector of the first token; zeros for a text without any."""
    return stream.x[:, 0] if stream.x.shape[1] else stream.x.sum(1)


def take_last(stream: Stream) -> Tensor:
    """Vector of the last real token, such as the final output of a recurrent network; zeros for a text without any."""
    if not stream.x.shape[1]:
        return stream.x.sum(1)
    index = get_keep(stream).sum(1, keepdim=True).clamp(min=1) - 1  # (B, 1, 1)
    return stream.x.gather(1, index.expand(-1, 1, stream.x.shape[-1])).squeeze(1)


POOLS: dict[str, Callable[[Stream], Tensor]] = {
    "mean": mean_pool,
    "max": max_pool,
    "first": take_first,
    "last": take_last,
}


class Pool(nn.Module):
    """Pooling by `kind`: (B, T, C) -> (B, C).

    >>> Pool("last")(Stream.of(torch.tensor([[[1.0], [5.0], [9.0]]]), torch.tensor([[True, True, False]])))
    tensor([[5.]])
    """

    def __init__(self, kind: str = "mean"):
        super().__init__()
        if kind not in POOLS:
            raise UserError(f"pool: there is no '{kind}'; {nearest(kind, POOLS)}")
        self.kind = kind
        self.tokens_read = 1 if kind == "first" else None  # number of first tokens that it reads; None: all

    def forward(self, stream: Stream) -> Tensor:
        return POOLS[self.kind](stream)

    def extra_repr(self) -> str:
        return self.kind


def count_needed_outputs(pools: Iterable[nn.Module]) -> int | None:
    """Number of first tokens that these poolings read; None: all.

    >>> count_needed_outputs([Pool("first"), nn.Sequential(Pool("first"), nn.Tanh())])
    1
    >>> count_needed_outputs([Pool("first"), Pool("mean")]) is None
    True
    """
    counts = [getattr(pool[0] if isinstance(pool, nn.Sequential) else pool, "tokens_read", None) for pool in pools]
    known = [count for count in counts if count is not None]
    return max(known, default=None) if len(known) == len(counts) else None
