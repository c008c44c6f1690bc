"""Attention from blocks of queries to a few key blocks each, chosen by index (BigBird, Zaheer et al. 2020).

The key blocks of a query block are gathered side by side, so gathered keys and values need as many times the memory of
the keys as a block has key blocks. They are gathered for a few query blocks at a time and gathered again in the
backward pass: memory grows like that of the keys themselves, and what was gathered is still in the processor's cache
when it is read.

Letters: B rows, H heads, N blocks, S tokens of a block, D head_width, R key blocks of a block, W keys of a block,
E global keys that every block attends to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

GATHERED_ON_CPU = 2**21  # elements of keys that are gathered at a time; accelerators prefer more
GATHERED = 2**26


def attend_blocks(
    q: Tensor, k: Tensor, v: Tensor, global_k: Tensor, global_v: Tensor, mask: Tensor, index: Tensor
) -> Tensor:
    """Attention of each block to the key blocks of `index` and to the global keys: 3 x (B, H, N, S, D),
    2 x (B, H, 1, E, D), an additive mask (B, H, N, 1, W), (B, H, N, R) -> (B, H, N, S, D)."""
    rows = q.shape[0]
    tensors = (q, k, v, global_k, global_v, mask, index)
    by_head = (x.expand(rows, *x.shape[1:]).flatten(0, 1).unsqueeze(0) for x in tensors)  # (B, H, ...) -> (1, BH, ...)
    elements = GATHERED_ON_CPU if q.device.type == "cpu" else GATHERED
    span = max(1, elements // (mask.shape[4] * q.shape[4]))  # blocks at a time
    pieces = zip(*(x.split(max(1, span // q.shape[2]), 1) for x in by_head), strict=True)
    return torch.cat([_attend_spans(span, *piece) for piece in pieces], 1).view_as(q)


def _attend_spans(
    span: int, q: Tensor, k: Tensor, v: Tensor, global_k: Tensor, global_v: Tensor, mask: Tensor, index: Tensor
) -> Tensor:
    """`attend_blocks` for `span` blocks of each head at a time."""
    outputs = []
    for queries, span_mask, span_index in zip(*(x.split(span, 2) for x in (q, mask, index)), strict=True):
        gather_k = partial(_gather_keys, k, global_k, span_index)
        gather_v = partial(_gather_keys, v, global_v, span_index)
        keys, values = gather_k(), gather_v()
        with recompute_saved((keys, gather_k), (values, gather_v)):
            # Each block as a head with one block: nothing overlaps, so the kernel saves these tensors without copies.
            flat = (x.flatten(1, 2).unsqueeze(2) for x in (queries, keys, values, span_mask))  # (1, HN, 1, ...)
            outputs.append(attend(*flat).view_as(queries))
    return torch.cat(outputs, 2)


def _gather_keys(x: Tensor, global_x: Tensor, index: Tensor) -> Tensor:
    """Keys or values of the indexed blocks and the global ones: (B, H, N, W, D)."""
    blocks = gather_blocks(x, index)
    return torch.cat((blocks, global_x.expand(-1, -1, blocks.shape[2], -1, -1)), 3) if global_x.shape[3] else blocks


def recompute_saved(*pairs: tuple[Tensor, Callable[[], Tensor]]) -> saved_tensors_hooks:
    """A context in which autograd saves, instead of each of these tensors, the function that computes it."""
    functions = {_storage_id(tensor): compute for tensor, compute in pairs}

    def pack(tensor: Tensor) -> Tensor | tuple[Callable[[], Tensor], torch.Size]:
        compute = functions.get(_storage_id(tensor))
        return (compute, tensor.shape) if compute and tensor.is_contiguous() else tensor

    @torch.no_grad()
    def unpack(packed: Tensor | tuple[Callable[[], Tensor], torch.Size]) -> Tensor:
        return packed if isinstance(packed, Tensor) else packed[0]().view(packed[1])

    return saved_tensors_hooks(pack, unpack)


def _storage_id(x: Tensor) -> int:
    number: int = x.untyped_storage()._cdata
    return number


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention of each block to its own keys: (B, H, N, S, D), 2 x (B, H, N, W, D) -> (B, H, N, S, D)."""
    if len(mask) > 1 and mask.shape[1] == 1 < mask.shape[3]:
        # One row at a time: the kernel would copy such a large mask for each head.
        return torch.cat([attend(*row) for row in zip(*(x.split(1) for x in (q, k, v, mask)), strict=True)])
    if mask.shape[:2] != (1, 1):
        mask = mask.expand(*q.shape[:2], -1, -1, -1)
    # Rows and heads as one dimension and blocks as the other: the kernel takes overlapping views without a copy.
    flat = partial(torch.flatten, start_dim=0, end_dim=1)
    return F.scaled_dot_product_attention(flat(q), flat(k), flat(v), flat(mask)).unflatten(0, q.shape[:2])


def flatten_index(x: Tensor, index: Tensor) -> Tensor:
    """Block indices (B, H, M, R) of each row and head as indices into all B*H*N blocks of (B, H, N, S, D)."""
    rows, heads, count = x.shape[:3]
    return index.clamp(min=0) + count * torch.arange(rows * heads, device=x.device).view(rows, heads, 1, 1)


def gather_blocks(x: Tensor, index: Tensor) -> Tensor:
    """Blocks by index: (B, H, N, S, D) and (B, H, M, R) -> (B, H, M, RS, D)."""
    flat = flatten_index(x, index)
    blocks = x.flatten(0, 2).flatten(1).index_select(0, flat.flatten())  # (BHN, SD) -> (BHMR, SD)
    return blocks.view(*flat.shape[:3], -1, x.shape[4])


def replace_blocks(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """(B, H, N, S, D) with the blocks (B, H, 1, R) replaced by `values` (B, H, RS, D)."""
    flat, blocks = flatten_index(x, index).flatten(), x.flatten(0, 2).flatten(1)  # (BHR,), (BHN, SD)
    return blocks.index_copy(0, flat, values.reshape(len(flat), blocks.shape[1])).view_as(x)
