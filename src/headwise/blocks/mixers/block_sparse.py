"""Attention of blocks to a few blocks each, chosen by number, a piece at a time.

Blocks that are seen are put side by side, so keys and values take as many times their memory as a block sees blocks.
They are put so for a piece of the work only, and again for its gradient: memory grows as that of the keys themselves,
and what is put together is still in the processor's cache when it is read.

Letters: B rows, H heads, N blocks, S tokens of a block, D head_width, R blocks that a block sees, W keys that it looks
at, E keys that all look at besides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

PIECE = 2**21  # how many numbers of keys are put together at a time; accelerators like larger pieces
LARGE = 2**26


def attend_blocks(
    q: Tensor, k: Tensor, v: Tensor, more_k: Tensor, more_v: Tensor, mask: Tensor, slots: Tensor
) -> Tensor:
    """Each block at those that `slots` name, and at `more`: 3 x (B, H, N, S, D), 2 x (B, H, 1, E, D), what is added to
    scores (B, H, N, 1, W), (B, H, N, R) -> (B, H, N, S, D)."""
    rows = len(q)
    work = (x.expand(rows, *x.shape[1:]).flatten(0, 1).unsqueeze(0) for x in (q, k, v, more_k, more_v, mask, slots))
    size = PIECE if q.device.type == "cpu" else LARGE
    span = max(1, size // (mask.shape[4] * q.shape[4]))  # blocks of a piece
    pieces = zip(*(x.split(max(1, span // q.shape[2]), 1) for x in work), strict=True)
    return torch.cat([_some_heads(span, *piece) for piece in pieces], 1).view_as(q)


def _some_heads(
    span: int, q: Tensor, k: Tensor, v: Tensor, more_k: Tensor, more_v: Tensor, mask: Tensor, slots: Tensor
) -> Tensor:
    """`attend_blocks` for `span` blocks of each head at a time."""
    found = []
    for asking, hidden, chosen in zip(*(x.split(span, 2) for x in (q, mask, slots)), strict=True):
        make_k, make_v = partial(_beside, k, more_k, chosen), partial(_beside, v, more_v, chosen)
        keys, values = make_k(), make_v()
        with made_again((keys, make_k), (values, make_v)):
            # Each block as a head with one block: nothing overlaps, so that the kernel's layout is ours.
            apart = (x.flatten(1, 2).unsqueeze(2) for x in (asking, keys, values, hidden))  # (1, HN, 1, ...)
            found.append(attend(*apart).view_as(asking))
    return torch.cat(found, 2)


def _beside(x: Tensor, more: Tensor, slots: Tensor) -> Tensor:
    """The chosen blocks and what all look at: (B, H, N, W, D)."""
    found = gathered(x, slots)
    return torch.cat((found, more.expand(-1, -1, found.shape[2], -1, -1)), 3) if more.shape[3] else found


def made_again(*made: tuple[Tensor, Callable[[], Tensor]]) -> saved_tensors_hooks:
    """A context in which autograd keeps none of these tensors, but how each is made."""
    makers = {_storage(tensor): make for tensor, make in made}

    def keep(tensor: Tensor) -> Tensor | tuple[Callable[[], Tensor], torch.Size]:
        make = makers.get(_storage(tensor))
        return (make, tensor.shape) if make and tensor.is_contiguous() else tensor

    @torch.no_grad()
    def give(kept: Tensor | tuple[Callable[[], Tensor], torch.Size]) -> Tensor:
        return kept if isinstance(kept, Tensor) else kept[0]().view(kept[1])

    return saved_tensors_hooks(keep, give)


def _storage(x: Tensor) -> int:
    number: int = x.untyped_storage()._cdata
    return number


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Each block at its own keys: (B, H, N, S, D), 2 x (B, H, N, W, D) -> (B, H, N, S, D)."""
    if len(mask) > 1 and mask.shape[1] == 1 < mask.shape[3]:
        # Rows one by one: the kernel would want such a large mask once for each head.
        return torch.cat([attend(*row) for row in zip(*(x.split(1) for x in (q, k, v, mask)), strict=True)])
    if mask.shape[:2] != (1, 1):
        mask = mask.expand(*q.shape[:2], -1, -1, -1)
    # Rows and heads as one dimension and blocks as the other: the kernel takes overlapping views as they are.
    flat = partial(torch.flatten, start_dim=0, end_dim=1)
    return F.scaled_dot_product_attention(flat(q), flat(k), flat(v), flat(mask)).unflatten(0, q.shape[:2])


def numbered(x: Tensor, slots: Tensor) -> Tensor:
    """Where the blocks (B, H, M, R) of each row and head stand among all blocks of (B, H, N, S, D)."""
    rows, heads, count = x.shape[:3]
    return slots.clamp(min=0) + count * torch.arange(rows * heads, device=x.device).view(rows, heads, 1, 1)


def gathered(x: Tensor, slots: Tensor) -> Tensor:
    """Blocks by number: (B, H, N, S, D) and (B, H, M, R) -> (B, H, M, RS, D)."""
    where = numbered(x, slots)
    found = x.flatten(0, 2).flatten(1).index_select(0, where.flatten())  # (BHN, SD) -> (BHMR, SD)
    return found.view(*where.shape[:3], -1, x.shape[4])


def placed(x: Tensor, slots: Tensor, values: Tensor) -> Tensor:
    """(B, H, N, S, D) with the blocks (B, H, 1, R) replaced by `values` (B, H, RS, D)."""
    where, every = numbered(x, slots).flatten(), x.flatten(0, 2).flatten(1)  # (BR,), (BHN, SD)
    return every.index_copy(0, where, values.reshape(len(where), every.shape[1])).view_as(x)
