"""From a vector for each token to one for the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from headwise.blocks.stream import Stream
from headwise.errors import UserError, nearest


def real(stream: Stream) -> Tensor:
    """True = real token, (B, T, 1)."""
    keep = stream.keep if stream.keep is not None else torch.ones_like(stream.x[..., 0], dtype=torch.bool)
    return keep.unsqueeze(-1)


def mean(stream: Stream) -> Tensor:
    """The mean of the real tokens' vectors; zeros for a text without any."""
    keep = real(stream)
    return (stream.x * keep).sum(1) / keep.sum(1).clamp(min=1)


def maximum(stream: Stream) -> Tensor:
    """The largest value of each channel over the real tokens."""
    keep = real(stream)
    least = stream.x.masked_fill(~keep, torch.finfo(stream.x.dtype).min).amax(1)
    return least.masked_fill(~keep.any(1), 0.0)


def first(stream: Stream) -> Tensor:
    """The first token's vector."""
    return stream.x[:, 0]


def last(stream: Stream) -> Tensor:
    """The last real token's vector: where a recurrent network has read everything."""
    place = real(stream).sum(1, keepdim=True).clamp(min=1) - 1  # (B, 1, 1)
    return stream.x.gather(1, place.expand(-1, 1, stream.x.shape[-1])).squeeze(1)


POOLS: dict[str, Callable[[Stream], Tensor]] = {"mean": mean, "max": maximum, "first": first, "last": last}


class Pool(nn.Module):
    """(B, T, C) -> (B, C).

    >>> Pool("last")(Stream.of(torch.tensor([[[1.0], [5.0], [9.0]]]), torch.tensor([[True, True, False]])))
    tensor([[5.]])
    """

    def __init__(self, kind: str = "mean"):
        super().__init__()
        if kind not in POOLS:
            raise UserError(f"pool: there is no '{kind}'; {nearest(kind, POOLS)}")
        self.kind = kind
        self.tokens_read = 1 if kind == "first" else None  # how many of the first tokens it reads; None: all

    def forward(self, stream: Stream) -> Tensor:
        return POOLS[self.kind](stream)

    def extra_repr(self) -> str:
        return self.kind


def count_needed_outputs(pools: Iterable[nn.Module]) -> int | None:
    """How many of the first tokens all of these read together; None: all there are.

    >>> count_needed_outputs([Pool("first"), nn.Sequential(Pool("first"), nn.Tanh())])
    1
    >>> count_needed_outputs([Pool("first"), Pool("mean")]) is None
    True
    """
    counts = [getattr(pool[0] if isinstance(pool, nn.Sequential) else pool, "tokens_read", None) for pool in pools]
    known = [count for count in counts if count is not None]
    return max(known, default=None) if len(known) == len(counts) else None
