"""Learned weights of an image model (Dosovitskiy et al. 2021, figure 7 left and middle): principal components of the
patch embedding's filters, cosine similarity of position embeddings, relative position biases.

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

MAX_COMPONENTS = 28  # components, as in the paper
COLUMNS = 7


@dataclass(frozen=True, eq=False)
class Components:
    """Principal components of filters (K, C, P, P), orthonormal, and the share of variance that each explains."""

    filters: NDArray[np.floating]
    shares: NDArray[np.floating]
    count: int  # filters that were decomposed


def get_patch_filters(model: Any) -> Tensor:
    """Get the filters of the patch embedding or of the first convolution: (D, C, P, P)."""
    for module in model.encoder.stem.modules():
        if isinstance(module, PatchEmbedding):
            return module.project.weight.unflatten(1, (module.channels, module.patch, module.patch))
        if isinstance(module, nn.Conv2d):
            return module.weight
    raise UserError("--view filters: this model reads pixel by pixel; name a run whose model reads patches")


def compute_components(filters: Tensor, most: int = MAX_COMPONENTS) -> Components:
    """Compute the first principal components of filters (D, C, P, P); the entry of the largest size is positive, so
    that equal weights give equal pictures."""
    rows = filters.detach().flatten(1).double()  # (D, C, P, P) -> (D, CPP)
    _, singular_values, vectors = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    rank = int((singular_values > 1e-9 * singular_values.max()).sum())
    vectors = vectors[: min(most, rank)]
    vectors = vectors * vectors.gather(1, vectors.abs().argmax(1, keepdim=True)).sign()
    shares = singular_values.square() / singular_values.square().sum()
    return Components(
        vectors.unflatten(1, filters.shape[1:]).cpu().numpy(), shares[: len(vectors)].cpu().numpy(), len(rows)
    )


def build_filter_sheet(components: Components) -> Sheet:
    """Draw each component on its own scale: as RGB if it has three channels, else on a diverging colour map."""
    filters, shares = components.filters, components.shares
    tiles = [
        Tile(paint_filter(pixels), str(number), f"{100 * share:.1f} %")
        for number, (pixels, share) in enumerate(zip(filters, shares, strict=True), 1)
    ]
    note = f"principal components of {components.count} filters, {100 * shares.sum():.1f} % of their variance"
    numbers = {"filters": filters.round(5).tolist(), "shares": shares.round(5).tolist(), "of": components.count}
    return Sheet(tiles, COLUMNS, note, numbers, side=84.0)


def paint_filter(filters: NDArray[np.floating]) -> colour.Pixels:
    """Paint one filter: (C, P, P) -> (P, P, 3)."""
    high = float(np.abs(filters).max())
    if len(filters) == 3:
        return (127.5 * (1 + filters.transpose(1, 2, 0) / high)).round().astype(np.uint8)
    return colour.paint(filters.mean(0), -high, high, SIGNED)


def find_position_embedding(model: Any) -> nn.Module | None:
    """Find the position embedding that is added to patches or pixels, if there is one."""
    for module in model.encoder.modules():
        positions = getattr(module, "positions", None)
        if isinstance(positions, nn.Module) and any(True for _ in (*positions.parameters(), *positions.buffers())):
            return positions
    return None


def compute_position_vectors(model: Any, positions: nn.Module, pixels: Tensor) -> tuple[Tensor, Grid]:
    """Compute the position embedding of each patch, (hw, E), and the grid of patches: the output for zero inputs."""
    encoder, calls = model.encoder, list[tuple[Tensor, Tensor, Grid]]()
    hook = positions.register_forward_pre_hook(lambda _, arguments: calls.append(arguments))
    try:
        with inference_mode(model):
            encoder(pixels.to(get_device(model)), Context())
            x, pos, grid = calls[0]
            vectors = positions(torch.zeros_like(x[:1]), pos, grid)[0]  # (T, E)
    finally:
        hook.remove()
    return vectors[len(vectors) - grid[0] * grid[1] :], grid


def compute_similarities(vectors: Tensor) -> NDArray[np.floating]:
    """Compute the cosine similarities of all pairs, (hw, hw)."""
    unit = nn.functional.normalize(vectors.detach().double(), dim=-1)
    return (unit @ unit.T).cpu().numpy()


def build_position_sheet(cosines: NDArray[np.floating], grid: Grid) -> Sheet:
    """Draw a tile for each patch, at its place in the image: the similarity of its position with all others."""
    rows, columns = grid
    tiles = [Tile(colour.paint(row.reshape(grid), -1, 1, SIGNED)) for row in cosines]
    note = f"cosine of each position with every other, on the grid of {rows} x {columns} patches"
    numbers = {"grid": list(grid), "similarities": cosines.round(4).tolist()}
    return Sheet(
        tiles, columns, note, numbers, Scale(1.0, signed=True), side=max(28.0, min(84.0, 560 / columns)), gap=5
    )


def get_relative_biases(model: Any) -> list[Tensor]:
    """Get the relative position biases of each layer that has some: L x (H, h, w) of offsets."""
    biases = []
    for module in model.encoder.modules():
        if isinstance(module, RelativePositionBias):
            span = 2 * module.window - 1
            biases.append(module.compute_table().detach().t().unflatten(1, (span, span)))  # (offsets, H) -> (H, h, w)
        elif isinstance(module, OffsetBias):
            biases.append(module.scores.detach().unflatten(1, (-1, module.w)))
    return biases


def build_bias_sheet(tables: Sequence[Tensor]) -> Sheet:
    """Draw layers in rows and heads in columns, each without its mean, which softmax ignores. Offset zero is in the
    middle, or in the upper left corner if biases are symmetric."""
    arrays = [(table - table.mean((1, 2), keepdim=True)).float().cpu().numpy() for table in tables]
    columns, scale = max(map(len, arrays)), Scale.fit(*arrays)._replace(signed=True)
    tiles: list[Tile | None] = []
    for number, heads in enumerate(arrays, 1):
        tiles += [Tile(scale.paint(bias), f"{number}.{head}") for head, bias in enumerate(heads, 1)]
        tiles += [None] * (columns - len(heads))
    note = "relative position bias by the offset of key and query; layer.head"
    numbers = {"offsets": [biases.round(4).tolist() for biases in arrays]}
    return Sheet(tiles, columns, note, numbers, scale, side=max(48.0, min(84.0, 700 / columns)))
