"""What a model knows before it sees an image (Dosovitskiy et al. 2021, figure 7 left and middle): the filters of its
patches by principal components, and how alike the positions of two patches are; or what it adds to scores for each
offset between two places, where positions are relative.

Letters: D filters, C channels, P side of a filter, K components, T tokens, h x w grid, E width, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.grid import RelativePositionBias
from headwise.blocks.images import PatchEmbedding
from headwise.blocks.mixers.levit_attention import OffsetBias
from headwise.blocks.stream import Context
from headwise.errors import UserError
from headwise.inspect import colour
from headwise.inspect.colour import SIGNED, Scale
from headwise.inspect.image_maps import Grid
from headwise.inspect.panels import Sheet, Tile

SHOWN = 28  # components, as in the paper
ACROSS = 7


@dataclass(frozen=True, eq=False)
class Components:
    """Directions of pixels (K, C, P, P), orthonormal, and the share of the filters' variance that each has."""

    filters: NDArray[np.floating]
    shares: NDArray[np.floating]
    of: int  # filters


def kernels(model: Any) -> Tensor:
    """What the model's first weights look for in pixels: (D, C, P, P)."""
    for module in model.encoder.stem.modules():
        if isinstance(module, PatchEmbedding):
            return module.project.weight.unflatten(1, (module.channels, module.patch, module.patch))
        if isinstance(module, nn.Conv2d):
            return module.weight
    raise UserError("--view filters: this model reads pixel by pixel; name a run whose model reads patches")


def components(filters: Tensor, most: int = SHOWN) -> Components:
    """The first principal components of filters (D, C, P, P); their signs are such that the largest entry is positive,
    so that equal weights give equal pictures."""
    rows = filters.detach().flatten(1).double()  # (D, C, P, P) -> (D, CPP)
    _, sizes, directions = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    there = int((sizes > 1e-9 * sizes.max()).sum())
    found = directions[: min(most, there)]
    found = found * found.gather(1, found.abs().argmax(1, keepdim=True)).sign()
    shares = sizes.square() / sizes.square().sum()
    return Components(
        found.unflatten(1, filters.shape[1:]).cpu().numpy(), shares[: len(found)].cpu().numpy(), len(rows)
    )


def filter_sheet(found: Components) -> Sheet:
    """Each component on a scale of its own: grey ones both ways from nothing, those of three channels as colours."""
    tiles = [
        Tile(painted(each), str(number), f"{100 * share:.1f} %")
        for number, (each, share) in enumerate(zip(found.filters, found.shares, strict=True), 1)
    ]
    note = f"principal components of {found.of} filters, {100 * found.shares.sum():.1f} % of their variance"
    numbers = {"filters": found.filters.round(5).tolist(), "shares": found.shares.round(5).tolist(), "of": found.of}
    return Sheet(tiles, ACROSS, note, numbers, side=84.0)


def painted(filters: NDArray[np.floating]) -> colour.Pixels:
    """(C, P, P) -> (P, P, 3)"""
    high = float(np.abs(filters).max())
    if len(filters) == 3:
        return (127.5 * (1 + filters.transpose(1, 2, 0) / high)).round().astype(np.uint8)
    return colour.paint(filters.mean(0), -high, high, SIGNED)


def added_by(model: Any) -> nn.Module | None:
    """The positions that are added to patches or pixels, where there are some."""
    for module in model.encoder.modules():
        own = getattr(module, "positions", None)
        if isinstance(own, nn.Module) and (any(True for _ in own.parameters()) or any(True for _ in own.buffers())):
            return own
    return None


def places(model: Any, positions: nn.Module, pixels: Tensor) -> tuple[Tensor, Grid]:
    """What positions add to each patch of images like these, (hw, E), and the grid: whatever kind they are."""
    encoder, given = model.encoder, list[tuple[Tensor, Tensor, Grid]]()
    hook = positions.register_forward_pre_hook(lambda _, arguments: given.append(arguments))
    try:
        with inference_mode(model):
            encoder(pixels.to(get_device(model)), Context())
            x, pos, grid = given[0]
            vectors = positions(torch.zeros_like(x[:1]), pos, grid)[0]  # (T, E)
    finally:
        hook.remove()
    return vectors[len(vectors) - grid[0] * grid[1] :], grid


def similarities(vectors: Tensor) -> NDArray[np.floating]:
    """Cosines of all pairs, (hw, hw)."""
    unit = nn.functional.normalize(vectors.detach().double(), dim=-1)
    return (unit @ unit.T).cpu().numpy()


def position_sheet(cosines: NDArray[np.floating], grid: Grid) -> Sheet:
    """A tile for each patch, where it stands in the image: how alike its position is to that of every other."""
    rows, columns = grid
    tiles = [Tile(colour.paint(each.reshape(grid), -1, 1, SIGNED)) for each in cosines]
    note = f"cosine of each position with every other, on the grid of {rows} x {columns} patches"
    numbers = {"grid": list(grid), "similarities": cosines.round(4).tolist()}
    return Sheet(
        tiles, columns, note, numbers, Scale(1.0, signed=True), side=max(28.0, min(84.0, 560 / columns)), gap=5
    )


def offsets(model: Any) -> list[Tensor]:
    """The learned scores for offsets on the grid, of each layer that has some: L x (H, rows, columns)."""
    found = []
    for term in model.encoder.modules():
        if isinstance(term, RelativePositionBias):
            span = 2 * term.window - 1
            found.append(term.compute_table().detach().t().unflatten(1, (span, span)))  # (offsets, H) -> (H, h, w)
        elif isinstance(term, OffsetBias):
            found.append(term.scores.detach().unflatten(1, (-1, term.columns)))
    return found


def offset_sheet(tables: Sequence[Tensor]) -> Sheet:
    """A line for each layer, a tile for each head, from its mean both ways: a softmax does not see the mean. The middle
    is a place itself; where scores are the same both ways, it is the upper left corner."""
    arrays = [(each - each.mean((1, 2), keepdim=True)).float().cpu().numpy() for each in tables]
    columns, scale = max(map(len, arrays)), Scale.over(*arrays)._replace(signed=True)
    tiles: list[Tile | None] = []
    for number, heads in enumerate(arrays, 1):
        tiles += [Tile(scale.paint(each), f"{number}.{head}") for head, each in enumerate(heads, 1)]
        tiles += [None] * (columns - len(heads))
    note = "scores for offsets between a place and what it looks at; layer.head"
    numbers = {"offsets": [each.round(4).tolist() for each in arrays]}
    return Sheet(tiles, columns, note, numbers, scale, side=max(48.0, min(84.0, 700 / columns)))
