"""Attention kernels. `plain` is the readable reference for all others.

`sdpa` takes dot products, masks and biases; `auto` picks it wherever it can. A query whose keys are all masked gets
zeros from every kernel.

Letters: B rows, H heads, Tq queries, Tk keys, D head_width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionInputs
from headwise.errors import UserError, nearest

Kernel = Callable[[AttentionInputs], Tensor]
NEED_SCORES = ("edit_scores", "add_values", "edit_weights")  # hooks that need the score matrix itself


def find_unfused(inputs: AttentionInputs) -> list[nn.Module]:
    """The score and score mods that a fused kernel does not support: scores other than dot products, and mods that need
    the score matrix."""
    return [*([] if inputs.score.fused else [inputs.score]), *inputs.list_mods(*NEED_SCORES)]


def compute_weights(inputs: AttentionInputs) -> Tensor:
    """The attention weights: softmax(score(q, k) + bias + mask), (B, H, Tq, Tk)."""
    # (B, H, Tq, D) and (B, H, Tk, D) -> (B, H, Tq, Tk)
    scores = inputs.score.compute_scores(inputs.score.project_query(inputs.q) * inputs.scale, inputs.k)
    for mod in inputs.list_mods("edit_scores"):
        scores = mod.edit_scores(scores, inputs)
    bias, mask = inputs.build_bias(), inputs.build_mask()
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        # A finite fill and a second one after the softmax: queries whose keys are all masked get zeros, not NaN.
        scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if mask is not None and any(mod.may_mask_all for mod in inputs.list_masking_mods()):
        weights = weights.masked_fill(mask, 0.0)
    for mod in inputs.list_mods("edit_weights"):
        weights = mod.edit_weights(weights, inputs)
    return weights


def plain(inputs: AttentionInputs) -> Tensor:
    """The reference attention kernel: scaled dot-product attention written out, for any score and any score mod."""
    weights = compute_weights(inputs).to(inputs.v.dtype)  # a float32 bias makes them float32
    if inputs.dropout:
        weights = F.dropout(weights, inputs.dropout)
    out = weights @ inputs.v  # (B, H, Tq, Tk) @ (B, H, Tk, D) -> (B, H, Tq, D)
    for mod in inputs.list_mods("add_values"):
        out = out + mod.add_values(weights, inputs)
    return out


def sdpa(inputs: AttentionInputs) -> Tensor:
    """torch's fused scaled_dot_product_attention (flash attention where it can): dot products, masks and biases; no mod
    that needs the score matrix itself."""
    if unfused := find_unfused(inputs):
        names = ", ".join(type(module).__name__ for module in unfused)
        raise UserError(f"kernel: 'sdpa' cannot take {names}; use kernel = 'plain', 'chunked' or 'auto'")
    bias = inputs.build_bias()
    masking = inputs.list_masking_mods()
    # `is_causal` aligns query 0 with key 0, so it is right only where queries and keys are the same tokens.
    is_causal = bias is None and len(masking) == 1 and masking[0].is_causal_mask and bool(inputs.layout.offset == 0)
    attn_mask: Tensor | None = None
    if bias is not None:
        attn_mask, additive_mask = bias.to(inputs.q.dtype), inputs.build_additive_mask()
        attn_mask = attn_mask if additive_mask is None else attn_mask + additive_mask
    elif masking and not is_causal:
        mask = inputs.build_mask()
        assert mask is not None
        attn_mask = ~mask  # a boolean mask of SDPA has True = attend
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.unsqueeze(0)  # (H, Tq, Tk) -> (1, H, Tq, Tk)
    return F.scaled_dot_product_attention(
        inputs.score.project_query(inputs.q),
        inputs.k,
        inputs.v,
        attn_mask,
        inputs.dropout,
        is_causal=is_causal,
        scale=inputs.scale,
    )


def chunked(inputs: AttentionInputs, chunk: int = 256) -> Tensor:
    """`plain` over chunks of queries: any score and score mod, memory linear in the number of keys."""
    outs = []
    for start in range(0, inputs.layout.queries, chunk):
        end = min(start + chunk, inputs.layout.queries)
        outs.append(plain(_slice_queries(inputs, start, end)))
    return torch.cat(outs, dim=2)  # (B, H, chunk, D) each -> (B, H, Tq, D)


def _slice_queries(inputs: AttentionInputs, start: int, end: int) -> AttentionInputs:
    """The inputs of queries `start` ... `end` - 1."""
    layout = inputs.layout
    # Under a causal mask keys after the last of these queries are masked, so they are left out.
    keys = layout.offset + end if any(mod.causal for mod in inputs.score_mods) else layout.keys
    sliced = replace(
        layout,
        queries=end - start,
        keys=keys,
        query_pos=None if layout.query_pos is None else layout.query_pos[..., start:end],
        key_pos=None if layout.key_pos is None else layout.key_pos[..., :keys],
        keep=None if layout.keep is None else layout.keep[:, :keys],
        query_segment=None if layout.query_segment is None else layout.query_segment[..., start:end],
        key_segment=None if layout.key_segment is None else layout.key_segment[..., :keys],
        query_types=None if layout.query_types is None else layout.query_types[:, start:end],
        key_types=None if layout.key_types is None else layout.key_types[:, :keys],
        pair=None if layout.pair is None else layout.pair[:, start:end, :keys],
    )
    return replace(
        inputs, q=inputs.q[:, :, start:end], k=inputs.k[:, :, :keys], v=inputs.v[:, :, :keys], layout=sliced, shared={}
    )


def auto(inputs: AttentionInputs) -> Tensor:
    """The fused kernel, which is the fastest at every length (`headwise bench attention`), wherever it supports the
    score and score mods; else the plain kernel, in chunks where the score matrix would be large."""
    if find_unfused(inputs):
        return (plain if inputs.layout.queries * inputs.layout.keys <= 1024 * 1024 else chunked)(inputs)
    return sdpa(inputs)


KERNELS: dict[str, Kernel] = {"auto": auto, "plain": plain, "sdpa": sdpa, "chunked": chunked}


def get_kernel(name: str) -> Kernel:
    """Look up a kernel by name."""
    if name not in KERNELS:
        raise UserError(f"kernel: there is no '{name}'; {nearest(name, KERNELS)}")
    return KERNELS[name]
