"""Images seen through affine maps: one for each image, all at once.

A map takes a place in the new image to one in the old, in pixels from the centre, x before y:

    x_old = a x + b y + right,  y_old = c x + d y + down
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Interpolation = Literal["bilinear", "bicubic"]


def warp(
    images: Tensor,
    maps: Tensor,
    interpolation: Interpolation = "bilinear",
    outside: Literal["zeros", "border"] = "zeros",
) -> Tensor:
    """Images through their maps (B, 2, 3); what lies outside is black, or as the nearest pixel."""
    height, width = images.shape[-2:]
    # torch counts places from -1 to 1, half a pixel outside the outermost centres
    sides = torch.tensor([width / 2, height / 2], dtype=images.dtype, device=images.device)
    scales = torch.cat([sides, sides.new_ones(1)])  # what x, y and 1 are multiplied with
    grid = F.affine_grid(maps * scales / sides[:, None], list(images.shape), align_corners=False)
    seen = F.grid_sample(images, grid, interpolation, outside, align_corners=False)
    return seen.clamp(0, 1)  # bicubic weights overshoot at edges


def build_maps(a: Tensor, b: Tensor, right: Tensor, c: Tensor, d: Tensor, down: Tensor) -> Tensor:
    """Six numbers for each image as its map: (B,) x 6 -> (B, 2, 3)."""
    return torch.stack([a, b, right, c, d, down], dim=1).view(-1, 2, 3)


def shear_x(images: Tensor, slope: Tensor) -> Tensor:
    """Rows pushed sideways, the further from the middle the more: (B,) pixels a row."""
    one, none = torch.ones_like(slope), torch.zeros_like(slope)
    return warp(images, build_maps(one, slope, none, none, one, none))


def shear_y(images: Tensor, slope: Tensor) -> Tensor:
    """Columns pushed up and down: (B,) pixels a column."""
    one, none = torch.ones_like(slope), torch.zeros_like(slope)
    return warp(images, build_maps(one, none, none, slope, one, none))


def rotate(images: Tensor, angle: Tensor) -> Tensor:
    """Turned about the middle, anticlockwise, by (B,) radians."""
    none = torch.zeros_like(angle)
    return warp(images, build_maps(angle.cos(), -angle.sin(), none, angle.sin(), angle.cos(), none))


def translate(images: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Moved by (B,) pixels to the right and (B,) down."""
    one, none = torch.ones_like(right), torch.zeros_like(right)
    return warp(images, build_maps(one, none, -right, none, one, -down))
