"""How far attention looks (Dosovitskiy et al. 2021, figure 7 right): the mean distance in pixels between a patch and
what it looks at, for each head of each layer.

    d = 1/N sum_i sum_j a_ij |x_i - x_j|

over patches alone: what goes to class_tokens is left out, and the rest of a row counts as one. Heads that are local in
the lowest layers do what a convolution would.

Letters: B images, H heads, N patches that ask, M that are looked at.
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
from headwise.inspect.files import figure
from headwise.inspect.image_maps import Gaze, Grid, of_encoder
from headwise.tasks.classify_images import batch_images

AT_ONCE = 8  # images whose maps are kept together


@dataclass(frozen=True, eq=False)
class Distances:
    """`layers` has the distances of each layer's heads, `even` what they would be if all patches were looked at alike,
    in pixels."""

    layers: tuple[NDArray[np.floating], ...]
    even: tuple[float, ...]
    images: int

    def to_json(self) -> dict[str, Any]:
        layers = [heads.round(4).tolist() for heads in self.layers]
        return {"images": self.images, "layers": layers, "even": [round(each, 4) for each in self.even]}

    def table(self) -> str:
        """A line a layer: its heads, their mean, and what an even look would have."""
        most = max(map(len, self.layers))
        lines = ["  ".join(["layer", *(f"head {n}".rjust(7) for n in range(1, most + 1)), "   mean", "   even"])]
        for number, (heads, even) in enumerate(zip(self.layers, self.even, strict=True), 1):
            cells = [f"{each:7.2f}" for each in heads] + [" " * 7] * (most - len(heads))
            lines.append("  ".join([f"{number:>5}", *cells, f"{heads.mean():7.2f}", f"{even:7.2f}"]))
        return "\n".join(lines)

    def save(self, out: Path, title: str) -> Path:
        """A dot for each head, layers from left to right; .svg or .png."""
        depth = len(self.layers)
        with figure(out, min(10, max(5, 0.6 * depth + 2)), 4) as drawn:
            axes = drawn.subplots()
            for number, heads in enumerate(self.layers, 1):
                axes.scatter([number] * len(heads), heads, s=34, color=colour.WEIGHTS[3], alpha=0.75, linewidth=0)
            means = [heads.mean() for heads in self.layers]
            numbers = range(1, depth + 1)
            axes.plot(numbers, means, color=colour.WEIGHTS[4], linewidth=1.4, label="mean of the heads")
            axes.plot(numbers, self.even, ":", color=colour.SOFT, linewidth=1.2, label="all patches alike")
            axes.set(xlabel="layer", ylabel="mean distance, pixels", xlim=(0.5, depth + 0.5), title=title)
            axes.set_ylim(0, 1.08 * max(*self.even, *(heads.max() for heads in self.layers)))
            axes.set_xticks(numbers)
            axes.grid(axis="y", alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize="small", loc="lower right")
        return out


def distances(model: Any, images: NDArray[np.uint8] | Tensor, normalised: Any) -> Distances:
    """The mean over images (N, C, H, W) of bytes."""
    height, width = images.shape[-2:]
    sums: list[Tensor] = []
    even: list[float] = []
    for part in batch_images(images, AT_ONCE):
        gazes = placed(of_encoder(model, normalised(part)))
        found = [mean_distance(gaze, (height, width)).sum(0) for gaze in gazes]  # L x (H,)
        sums = found if not sums else [old + new for old, new in zip(sums, found, strict=True)]
        even = even or [float(apart(gaze.asks or gaze.seen, gaze.seen, (height, width)).mean()) for gaze in gazes]
    return Distances(tuple((each / len(images)).cpu().numpy() for each in sums), tuple(even), len(images))


def placed(gazes: Sequence[Gaze]) -> list[Gaze]:
    """Those in which places of the image ask."""
    found = [gaze for gaze in gazes if gaze.asks is not None]
    if not found:
        raise UserError("--view distance: here no places of the image ask, so none is far; use --view queries")
    return found


def mean_distance(gaze: Gaze, size: Grid) -> Tensor:
    """For images of `size` pixels, (B, H). Of weights with signs their sizes count."""
    assert gaze.asks is not None
    weights = gaze.weights[..., gaze.class_tokens :, gaze.class_tokens :].abs()  # (B, H, N, M)
    shares = weights / weights.sum(-1, keepdim=True).clamp(min=colour.TINY)
    return (shares * apart(gaze.asks, gaze.seen, size).to(shares)).sum(-1).mean(-1)


def apart(asks: Grid, seen: Grid, size: Grid) -> Tensor:
    """The distances in pixels between the middles of the places of two grids over one image, (N, M).

    >>> apart((1, 2), (1, 2), (4, 8)).tolist()
    [[0.0, 4.0], [4.0, 0.0]]
    """
    exact = "donot_use_mm_for_euclid_dist"  # the other way is a little off zero
    return torch.cdist(middles(asks, size), middles(seen, size), compute_mode=exact)


def middles(grid: Grid, size: Grid) -> Tensor:
    """(N, 2)"""
    sides = (
        (torch.arange(count, dtype=torch.float64) + 0.5) * pixels / count
        for count, pixels in zip(grid, size, strict=True)
    )
    return torch.cartesian_prod(*sides)
