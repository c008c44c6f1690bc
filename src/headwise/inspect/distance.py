"""Mean attention distance (Dosovitskiy et al. 2021, figure 7 right): the mean distance in pixels between a query patch
and the patches that it attends to, for each head of each layer.

    d = 1/N sum_i sum_j a_ij |x_i - x_j|

over patches alone: weights of class tokens are left out and the rows are normalised again. Heads of a small distance in
the lowest layers act like convolutions.

Letters: B images, H heads, N query patches, M key patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.errors import UserError
from headwise.inspect import colour
from headwise.inspect.files import open_figure
from headwise.inspect.image_maps import Grid, ImageAttention, record_encoder_attention
from headwise.tasks.classify_images import batch_images

BATCH = 8  # images whose attention maps are in memory at once


@dataclass(frozen=True, eq=False)
class Distances:
    """Mean attention distances in pixels: of the heads of each layer, and `even`, those of uniform attention."""

    layers: tuple[NDArray[np.floating], ...]
    even: tuple[float, ...]
    images: int

    def to_json(self) -> dict[str, Any]:
        layers = [heads.round(4).tolist() for heads in self.layers]
        return {"images": self.images, "layers": layers, "even": [round(pixels, 4) for pixels in self.even]}

    def table(self) -> str:
        """One line per layer: its heads, their mean, and the distance of uniform attention."""
        columns = max(map(len, self.layers))
        lines = ["  ".join(["layer", *(f"head {n}".rjust(7) for n in range(1, columns + 1)), "   mean", "uniform"])]
        for number, (heads, even) in enumerate(zip(self.layers, self.even, strict=True), 1):
            cells = [f"{head:7.2f}" for head in heads] + [" " * 7] * (columns - len(heads))
            lines.append("  ".join([f"{number:>5}", *cells, f"{heads.mean():7.2f}", f"{even:7.2f}"]))
        return "\n".join(lines)

    def save(self, out: Path, title: str) -> Path:
        """Plot a dot for each head, layers from left to right, as .svg or .png."""
        depth = len(self.layers)
        with open_figure(out, min(10, max(5, 0.6 * depth + 2)), 4) as figure:
            axes = figure.subplots()
            for number, heads in enumerate(self.layers, 1):
                axes.scatter([number] * len(heads), heads, s=34, color=colour.WEIGHTS[3], alpha=0.75, linewidth=0)
            means = [heads.mean() for heads in self.layers]
            numbers = range(1, depth + 1)
            axes.plot(numbers, means, color=colour.WEIGHTS[4], linewidth=1.4, label="mean of the heads")
            axes.plot(numbers, self.even, ":", color=colour.SOFT, linewidth=1.2, label="uniform attention")
            axes.set(xlabel="layer", ylabel="mean distance, pixels", xlim=(0.5, depth + 0.5), title=title)
            axes.set_ylim(0, 1.08 * max(*self.even, *(heads.max() for heads in self.layers)))
            axes.set_xticks(numbers)
            axes.grid(axis="y", alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize="small", loc="lower right")
        return out


def measure_distances(model: Any, images: NDArray[np.uint8] | Tensor, normalised: Any) -> Distances:
    """Measure the mean over images (N, C, H, W) of bytes."""
    height, width = images.shape[-2:]
    sums: list[Tensor] = []
    even: list[float] = []
    for batch in batch_images(images, BATCH):
        attentions = select_patch_queries(record_encoder_attention(model, normalised(batch)))
        distances = [compute_mean_distance(attention, (height, width)).sum(0) for attention in attentions]  # L x (H,)
        sums = distances if not sums else [old + new for old, new in zip(sums, distances, strict=True)]
        even = even or [
            float(
                compute_cell_distances(
                    attention.query_grid or attention.key_grid, attention.key_grid, (height, width)
                ).mean()
            )
            for attention in attentions
        ]
    return Distances(tuple((total / len(images)).cpu().numpy() for total in sums), tuple(even), len(images))


def select_patch_queries(attentions: Sequence[ImageAttention]) -> list[ImageAttention]:
    """Select the layers whose queries are patches."""
    selected = [attention for attention in attentions if attention.query_grid is not None]
    if not selected:
        raise UserError("--view distance: in this model no patch is a query; use --view queries")
    return selected


def compute_mean_distance(attention: ImageAttention, size: Grid) -> Tensor:
    """Mean attention distance in images of `size` pixels, (B, H). Of signed weights the absolute values count."""
    assert attention.query_grid is not None
    weights = attention.weights[..., attention.class_tokens :, attention.class_tokens :].abs()  # (B, H, N, M)
    shares = weights / weights.sum(-1, keepdim=True).clamp(min=colour.EPSILON)
    return (shares * compute_cell_distances(attention.query_grid, attention.key_grid, size).to(shares)).sum(-1).mean(-1)


def compute_cell_distances(queries: Grid, keys: Grid, size: Grid) -> Tensor:
    """Distances in pixels between the cell centres of two grids over one image, (N, M).

    >>> compute_cell_distances((1, 2), (1, 2), (4, 8)).tolist()
    [[0.0, 4.0], [4.0, 0.0]]
    """
    exact = "donot_use_mm_for_euclid_dist"  # matrix multiplication gives distances slightly off zero
    return torch.cdist(compute_cell_centres(queries, size), compute_cell_centres(keys, size), compute_mode=exact)


def compute_cell_centres(grid: Grid, size: Grid) -> Tensor:
    """Row and column of the cell centres in pixels, (N, 2)."""
    sides = (
        (torch.arange(count, dtype=torch.float64) + 0.5) * pixels / count
        for count, pixels in zip(grid, size, strict=True)
    )
    return torch.cartesian_prod(*sides)
