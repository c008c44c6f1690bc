"""Checks of image classifiers, (B, C, H, W) pixels -> (B, L) logits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from headwise.models.image_classifier import ImageClassifier

close = torch.testing.assert_close


def draw_images(shape: tuple[int, int, int], rows: int = 4, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random pixels for (channels, rows, columns)."""
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(3), dtype=dtype)


@torch.no_grad()
def check_batch(model: ImageClassifier, shape: tuple[int, int, int]) -> None:
    """An image gives the same alone as in a batch."""
    images = draw_images(shape)
    close(torch.cat([model(image[None]) for image in images]), model(images))


@torch.no_grad()
def check_exact(model: ImageClassifier, shape: tuple[int, int, int]) -> None:
    """In evaluation mode the same images give the same outputs."""
    images = draw_images(shape)
    close(model(images), model(images), rtol=0, atol=0)


@torch.no_grad()
def check_corners(model: ImageClassifier, shape: tuple[int, int, int]) -> None:
    """All outputs depend on the pixel in each corner."""
    images = draw_images(shape, rows=1)
    before = model(images)
    for row, column in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
        edited = images.clone()
        edited[..., row, column] += 1
        assert (model(edited) != before).all(), f"some output does not depend on the pixel at {row}, {column}"


Check = Callable[[ImageClassifier, tuple[int, int, int]], None]
CHECKS: dict[Check, Iterable[str]] = {
    check_batch: ("batch_independent",),
    check_exact: ("exact",),
    check_corners: (),
}
