"""Attention rollout (Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3): how much of each
patch is left in a token after all layers, if attention and residuals were all that mixes.

    R_l = (A_l + I) / 2 R_{l-1}

with A_l the mean of the heads, its rows summing to one (of weights with signs, their sizes count). Where tokens change
between layers, what they hold goes on: merged tokens hold the mean of those that they are made of, class_tokens that
come late hold nothing yet.

Letters: T tokens, N patches of the first grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.errors import UserError
from headwise.inspect.colour import TINY
from headwise.inspect.image_maps import Gaze, Grid


def rollout(gazes: Sequence[Gaze]) -> Tensor:
    """Attention rollout: what each token of the last layer holds of each patch of the first, for the first image: (T,
    N)."""
    if not gazes or gazes[0].asks is None:
        raise UserError(
            "--view rollout: follows patches from layer to layer, and here others read them; use --view queries"
        )
    first = gazes[0]
    grid: Grid | None = first.seen
    held = F.pad(
        torch.eye(prod(first.seen)).to(first.cells), (0, 0, first.class_tokens, 0)
    )  # class_tokens are no patches: (T, N)
    for gaze in gazes:
        held = mixed(gaze) @ carried(held, grid, gaze.seen, gaze.class_tokens)
        grid = gaze.seen if gaze.by_marks else gaze.asks
    return held


def mixed(gaze: Gaze) -> Tensor:
    """(A + I) / 2. Class attention leaves patches as they are; queries that are fewer than the keys, and no
    class_tokens, begin anew, without a residual."""
    if gaze.asks not in (None, gaze.seen):
        raise UserError("--view rollout: needs queries and keys that are the same tokens; use --view heads")
    weights = gaze.weights[0].mean(0).abs()  # (H, Tq, Tk) -> (Tq, Tk)
    shares = weights / weights.sum(-1, keepdim=True).clamp(min=TINY)
    queries, keys = shares.shape
    if queries < keys and not gaze.by_marks:
        return shares
    same = torch.eye(keys).to(shares)
    return torch.cat(((shares + same[:queries]) / 2, same[queries:]))


def carried(held: Tensor, old: Grid | None, new: Grid, class_tokens: int) -> Tensor:
    """What tokens hold on the grid of the next layer, which may be coarser and may have more class_tokens before it.
    Where the queries before stood on no grid of their own, they are this layer's tokens already."""
    if old is None:
        return held
    before = len(held) - prod(old)
    places = held[before:]
    if old != new:
        cells = places.t().unflatten(1, old)  # (hw, N) -> (N, h, w)
        places = F.adaptive_avg_pool2d(cells, new).flatten(1).t()  # -> (h'w', N)
    return F.pad(torch.cat((held[:before], places)), (0, 0, class_tokens - before, 0))
