"""Attention kernels. `plain` is the readable reference for all others.

Each kernel says which score mods it supports; `auto` picks by length, score mods and device. A query whose keys are all
masked gets zeros from every kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionInputs, Causal
from headwise.errors import UserError, nearest

Kernel = Callable[[AttentionInputs], Tensor]
NEED_SCORES = ("edit_scores", "add_values", "edit_weights")  # hooks that need the score matrix itself


def unfused(inputs: AttentionInputs) -> list[nn.Module]:
    """What a fused kernel does not support: scores that are no dot products, and mods that need the score matrix."""
    return [*([] if inputs.score.fused else [inputs.score]), *inputs.mods_with(*NEED_SCORES)]


def weights(inputs: AttentionInputs) -> Tensor:
    """The attention weights: softmax(score(q, k) + bias + mask), (B, H, Tq, Tk)."""
    scores = inputs.score.match(inputs.score.project_query(inputs.q) * inputs.scale, inputs.k)
    for mod in inputs.mods_with("edit_scores"):
        scores = mod.edit_scores(scores, inputs)
    bias, mask = inputs.bias(), inputs.mask()
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        # A finite fill and a second one after the softmax: rows that are masked altogether become zeros, not NaN.
        scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    mixed = scores.softmax(dim=-1)
    if mask is not None and any(mod.may_mask_all for mod in inputs.masking_mods()):
        mixed = mixed.masked_fill(mask, 0.0)
    for mod in inputs.mods_with("edit_weights"):
        mixed = mod.edit_weights(mixed, inputs)
    return mixed


def plain(inputs: AttentionInputs) -> Tensor:
    """The reference attention kernel: scaled dot-product attention written out, for any score and any score mod."""
    mixed = weights(inputs).to(inputs.v.dtype)  # float32 where a bias is
    if inputs.dropout:
        mixed = F.dropout(mixed, inputs.dropout)
    out = mixed @ inputs.v
    for mod in inputs.mods_with("add_values"):
        out = out + mod.add_values(mixed, inputs)
    return out


def sdpa(inputs: AttentionInputs) -> Tensor:
    """torch's fused scaled_dot_product_attention (flash attention where it can): dot products, masks and biases; no mod
    that needs the score matrix itself."""
    if refused := unfused(inputs):
        names = ", ".join(type(part).__name__ for part in refused)
        raise UserError(f"kernel: 'sdpa' cannot take {names}; use kernel = 'plain', 'chunked' or 'auto'")
    bias = inputs.bias()
    masks = inputs.masking_mods()
    # The flag aligns at the top left, so it is right only where the queries are all of the keys.
    causal = bias is None and len(masks) == 1 and isinstance(masks[0], Causal) and inputs.layout.offset == 0
    mask: Tensor | None = None
    if bias is not None:
        mask, barred = bias.to(inputs.q.dtype), inputs.additive_mask()
        mask = mask if barred is None else mask + barred
    elif masks and not causal:
        hidden = inputs.mask()
        assert hidden is not None
        mask = ~hidden
    if mask is not None and mask.dim() == 3:
        mask = mask.unsqueeze(0)
    return F.scaled_dot_product_attention(
        inputs.score.project_query(inputs.q),
        inputs.k,
        inputs.v,
        mask,
        inputs.dropout,
        is_causal=causal,
        scale=inputs.scale,
    )


def chunked(inputs: AttentionInputs, rows: int = 256) -> Tensor:
    """`plain` over blocks of queries: any score and score mod, memory linear in the length of the keys."""
    outs = []
    for start in range(0, inputs.layout.queries, rows):
        end = min(start + rows, inputs.layout.queries)
        outs.append(plain(_queries(inputs, start, end)))
    return torch.cat(outs, dim=2)


def _queries(inputs: AttentionInputs, start: int, end: int) -> AttentionInputs:
    """The part of a look that belongs to some of its queries."""
    layout = inputs.layout
    # A causal mask has the last query at the last key: cut the keys after these queries.
    causal = any(isinstance(mod, Causal) for mod in inputs.score_mods)
    keys = layout.offset + end if causal else layout.keys
    part = replace(
        layout,
        queries=end - start,
        keys=keys,
        query_pos=None if layout.query_pos is None else layout.query_pos[..., start:end],
        key_pos=None if layout.key_pos is None else layout.key_pos[..., :keys],
        keep=None if layout.keep is None else layout.keep[:, :keys],
        query_segment=None if layout.query_segment is None else layout.query_segment[..., start:end],
        key_segment=None if layout.key_segment is None else layout.key_segment[..., :keys],
    )
    return replace(
        inputs, q=inputs.q[:, :, start:end], k=inputs.k[:, :, :keys], v=inputs.v[:, :, :keys], layout=part, shared={}
    )


def auto(inputs: AttentionInputs) -> Tensor:
    """The fused kernel, which is the fastest at every length (`headwise bench attention`), wherever it can take the
    score and score mods; else plain products, in chunks where the score matrix would be large."""
    if unfused(inputs):
        return (plain if inputs.layout.queries * inputs.layout.keys <= 1024 * 1024 else chunked)(inputs)
    return sdpa(inputs)


KERNELS: dict[str, Kernel] = {"auto": auto, "plain": plain, "sdpa": sdpa, "chunked": chunked}


def get_kernel(name: str) -> Kernel:
    """A kernel by name."""
    if name not in KERNELS:
        raise UserError(f"kernel: there is no '{name}'; {nearest(name, KERNELS)}")
    return KERNELS[name]
