"""Batched affine transforms, one for each image.

A map takes a position in the new image to one in the old, in pixels from the centre, x before y:

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
    """Transform images by their maps (B, 2, 3); pixels from outside are black, or those of the border."""
    height, width = images.shape[-2:]
    # torch has coordinates from -1 to 1, the outer edges of the outermost pixels
    sides = torch.tensor([width / 2, height / 2], dtype=images.dtype, device=images.device)
    scales = torch.cat([sides, sides.new_ones(1)])  # factors of x, y and 1
    grid = F.affine_grid(maps * scales / sides[:, None], list(images.shape), align_corners=False)
    warped = F.grid_sample(images, grid, interpolation, outside, align_corners=False)
    return warped.clamp(0, 1)  # bicubic weights overshoot at edges


def build_maps(a: Tensor, b: Tensor, right: Tensor, c: Tensor, d: Tensor, down: Tensor) -> Tensor:
    """Stack six numbers for each image to its map: (B,) x 6 -> (B, 2, 3)."""
    return torch.stack([a, b, right, c, d, down], dim=1).view(-1, 2, 3)


def shear_x(images: Tensor, slope: Tensor) -> Tensor:
    """Shear horizontally by (B,) pixels a row, about the centre."""
    one, zero = torch.ones_like(slope), torch.zeros_like(slope)
    return warp(images, build_maps(one, slope, zero, zero, one, zero))


def shear_y(images: Tensor, slope: Tensor) -> Tensor:
    """Shear vertically by (B,) pixels a column, about the centre."""
    one, zero = torch.ones_like(slope), torch.zeros_like(slope)
    return warp(images, build_maps(one, zero, zero, slope, one, zero))


def rotate(images: Tensor, angle: Tensor) -> Tensor:
    """Rotate about the centre, anticlockwise, by (B,) radians."""
    zero = torch.zeros_like(angle)
    return warp(images, build_maps(angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero))


def translate(images: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Move by (B,) pixels to the right and (B,) down."""
    one, zero = torch.ones_like(right), torch.zeros_like(right)
    return warp(images, build_maps(one, zero, -right, zero, one, -down))
