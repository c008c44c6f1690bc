"""Kernels: ways to compute one look. `plain` is the readable oracle for all others.

Each kernel says which terms it can take; `auto` picks by length, terms and device. A row that sees nothing
gives zeros in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.look import Look
from headwise.blocks.terms import Causal
from headwise.errors import UserError, nearest

Kernel = Callable[[Look], Tensor]
CONTENT = ("edit", "gather", "reweigh")  # what needs the score matrix itself


def unfused(look: Look) -> list[nn.Module]:
    """What a fused kernel cannot take: scores that are no dot products, and terms that need the score matrix."""
    return [*([] if look.score.fused else [look.score]), *look.touching(*CONTENT)]


def weights(look: Look) -> Tensor:
    """The attention map: softmax(score(q, k) + terms), (B, H, Tq, Tk)."""
    scores = look.score.meet(look.score.ask(look.q) * look.scale, look.k)
    for term in look.touching("edit"):
        scores = term.edit(scores, look)
    bias, hidden = look.biases(), look.hidden()
    if bias is not None:
        scores = scores + bias
    if hidden is not None:
        # A finite fill and a second one after the softmax: rows that see nothing become zeros, not NaN.
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    mixed = scores.softmax(dim=-1)
    if hidden is not None and any(term.blinds for term in look.hiding()):
        mixed = mixed.masked_fill(hidden, 0.0)
    for term in look.touching("reweigh"):
        mixed = term.reweigh(mixed, look)
    return mixed


def plain(look: Look) -> Tensor:
    """Written out; any score and term."""
    mixed = weights(look).to(look.v.dtype)  # float32 where a bias is
    if look.dropout:
        mixed = F.dropout(mixed, look.dropout)
    out = mixed @ look.v
    for term in look.touching("gather"):
        out = out + term.gather(mixed, look)
    return out


def sdpa(look: Look) -> Tensor:
    """torch's fused kernel; dot products, masks and biases, no term that needs the score matrix itself."""
    if refused := unfused(look):
        names = ", ".join(type(part).__name__ for part in refused)
        raise UserError(f"kernel: 'sdpa' cannot take {names}; use kernel = 'plain', 'chunked' or 'auto'")
    bias = look.biases()
    masks = look.hiding()
    # The flag aligns at the top left, so it is right only where the queries are all of the keys.
    causal = bias is None and len(masks) == 1 and isinstance(masks[0], Causal) and look.sight.offset == 0
    mask: Tensor | None = None
    if bias is not None:
        mask, barred = bias.to(look.q.dtype), look.barred()
        mask = mask if barred is None else mask + barred
    elif masks and not causal:
        hidden = look.hidden()
        assert hidden is not None
        mask = ~hidden
    if mask is not None and mask.dim() == 3:
        mask = mask.unsqueeze(0)
    return F.scaled_dot_product_attention(
        look.score.ask(look.q), look.k, look.v, mask, look.dropout, is_causal=causal, scale=look.scale
    )


def chunked(look: Look, rows: int = 256) -> Tensor:
    """`plain` over blocks of queries: any score and term, memory linear in the length of the keys."""
    outs = []
    for start in range(0, look.sight.queries, rows):
        end = min(start + rows, look.sight.queries)
        outs.append(plain(_queries(look, start, end)))
    return torch.cat(outs, dim=2)


def _queries(look: Look, start: int, end: int) -> Look:
    """The part of a look that belongs to some of its queries."""
    sight = look.sight
    # Causal terms take the last query to stand at the last key: cut the keys that these queries cannot see.
    causal = any(isinstance(term, Causal) for term in look.terms)
    keys = sight.offset + end if causal else sight.keys
    part = replace(
        sight,
        queries=end - start,
        keys=keys,
        query_pos=None if sight.query_pos is None else sight.query_pos[..., start:end],
        key_pos=None if sight.key_pos is None else sight.key_pos[..., :keys],
        keep=None if sight.keep is None else sight.keep[:, :keys],
        query_segment=None if sight.query_segment is None else sight.query_segment[..., start:end],
        key_segment=None if sight.key_segment is None else sight.key_segment[..., :keys],
    )
    return replace(look, q=look.q[:, :, start:end], k=look.k[:, :, :keys], v=look.v[:, :, :keys], sight=part, shared={})


def auto(look: Look) -> Tensor:
    """The fused kernel, which is the fastest at every length (`headwise bench attention`), wherever it can take the
    look's score and terms; else plain products, in chunks where the score matrix would be large."""
    if unfused(look):
        return (plain if look.sight.queries * look.sight.keys <= 1024 * 1024 else chunked)(look)
    return sdpa(look)


KERNELS: dict[str, Kernel] = {"auto": auto, "plain": plain, "sdpa": sdpa, "chunked": chunked}


def kernel_named(name: str) -> Kernel:
    """A kernel by name."""
    if name not in KERNELS:
        raise UserError(f"kernel: there is no '{name}'; {nearest(name, KERNELS)}")
    return KERNELS[name]
