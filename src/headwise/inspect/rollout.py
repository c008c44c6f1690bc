"""Attention rollout (Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3): the contribution
of each patch to a token after all layers, from attention and residuals alone.

    R_l = (A_l + I) / 2 R_{l-1}

where A_l is the mean over the heads with normalised rows (absolute values of signed weights). If tokens change between
layers, merged tokens have the mean contributions of their parts, and class tokens that are added later begin at zero.

Letters: T tokens, N patches of the first grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.errors import UserError
from headwise.inspect.colour import EPSILON
from headwise.inspect.image_maps import Grid, ImageAttention


def compute_rollout(attentions: Sequence[ImageAttention]) -> Tensor:
    """Attention rollout of the first image: the contribution of each patch to each token of the last layer, (T, N)."""
    if not attentions or attentions[0].query_grid is None:
        raise UserError("--view rollout: needs self-attention between patches, which is absent; use --view queries")
    first = attentions[0]
    grid: Grid | None = first.key_grid
    identity = torch.eye(prod(first.key_grid)).to(first.recorded)
    rollout = F.pad(identity, (0, 0, first.class_tokens, 0))  # class tokens are no patches: (N, N) -> (T, N)
    for attention in attentions:
        rollout = resample_tokens(rollout, grid, attention.key_grid, attention.class_tokens)
        rollout = average_with_residual(attention) @ rollout
        grid = attention.key_grid if attention.is_class_attention else attention.query_grid
    return rollout


def average_with_residual(attention: ImageAttention) -> Tensor:
    """(A + I) / 2, or A if the queries are latents, which have no residual from the patches. Class attention leaves
    patches unchanged."""
    if attention.query_grid not in (None, attention.key_grid):
        raise UserError("--view rollout: needs queries and keys that are the same tokens; use --view heads")
    weights = attention.weights[0].mean(0).abs()  # (H, Tq, Tk) -> (Tq, Tk)
    shares = weights / weights.sum(-1, keepdim=True).clamp(min=EPSILON)
    queries, keys = shares.shape
    if queries < keys and not attention.is_class_attention:
        return shares
    identity = torch.eye(keys).to(shares)
    return torch.cat(((shares + identity[:queries]) / 2, identity[queries:]))


def resample_tokens(rollout: Tensor, old: Grid | None, new: Grid, class_tokens: int) -> Tensor:
    """Resample the rollout (T, N) to the grid of the next layer, which may be coarser and have more class tokens. After
    queries without a grid, the tokens stay the same."""
    if old is None:
        return rollout
    old_class_tokens = len(rollout) - prod(old)
    patches = rollout[old_class_tokens:]
    if old != new:
        cells = patches.t().unflatten(1, old)  # (hw, N) -> (N, h, w)
        patches = F.adaptive_avg_pool2d(cells, new).flatten(1).t()  # -> (h'w', N)
    return F.pad(torch.cat((rollout[:old_class_tokens], patches)), (0, 0, class_tokens - old_class_tokens, 0))
