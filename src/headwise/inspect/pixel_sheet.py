"""A picture of completed images: the original, what is given of it, and its completion."""

from __future__ import annotations

import io

import numpy as np

GAP = 2  # pixels between images, in units of their own pixels
MISSING = 110  # grey of rows that are not given
SIDE = 64  # about the height of an image in the picture


def draw_completions(originals: np.ndarray, completions: np.ndarray, keep: float) -> bytes:
    """A PNG with a column for each image of (N, C, H, W) bytes: original, given rows, completion."""
    from PIL import Image

    given = originals.copy()
    given[:, :, round(keep * given.shape[2]) :] = MISSING
    rows = [np.pad(images, ((0, 0), (0, 0), (GAP, 0), (GAP, 0)), constant_values=255) for images in
            (originals, given, completions)]  # fmt: skip
    grid = np.concatenate([np.concatenate(list(images), axis=2) for images in rows], axis=1)  # (C, 3 H, N W)
    grid = np.pad(grid, ((0, 0), (0, GAP), (0, GAP)), constant_values=255)
    scale = max(1, SIDE // originals.shape[2])
    grid = grid.repeat(scale, axis=1).repeat(scale, axis=2)
    file = io.BytesIO()
    picture = grid.transpose(1, 2, 0) if len(grid) == 3 else grid[0]
    Image.fromarray(np.ascontiguousarray(picture)).save(file, "PNG", optimize=True)
    return file.getvalue()
