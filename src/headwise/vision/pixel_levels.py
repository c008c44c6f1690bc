"""Pixels as tokens of a language model: quantised to levels, in raster order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headwise.errors import UserError
from headwise.text import SPECIALS
from headwise.text.base import TextlessEncoder
from headwise.text.normalise import PLAIN, Normaliser

if TYPE_CHECKING:
    from torch import Tensor

FIRST = len(SPECIALS)  # id of the darkest level


@dataclass(frozen=True, eq=False)
class PixelLevels(TextlessEncoder):
    """Pixel tokens of images: level floor(byte * levels / 256) of each pixel, row by row, its channels one after
    another (van den Oord et al. 2016). `counts` (T, levels) are those of the training images, by position.

    >>> import torch
    >>> tokens = PixelLevels(4, np.zeros((2, 4), np.int64))
    >>> ids = tokens.encode_images(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    >>> ids.tolist(), tokens.decode_images(ids, (1, 1, 2)).flatten().tolist()
    ([[4, 7]], [0, 255])
    """

    kind: ClassVar[str] = "levels"
    refusal: ClassVar[str] = (
        "tokeniser: levels are tokens of pixels, for the task pixels; choose another kind for texts"
    )
    levels: int
    counts: np.ndarray  # (T, levels)
    normalise: Normaliser = PLAIN  # of texts: unused
    vocabulary: list[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "vocabulary", [*SPECIALS, *(f"level {level}" for level in range(self.levels))])

    @classmethod
    def from_images(cls, images: np.ndarray, levels: int) -> PixelLevels:
        """Count the levels of training images (N, C, H, W) at each position."""
        rows = to_levels(images, levels)  # (N, T)
        counts = np.stack([np.bincount(column, minlength=levels) for column in rows.T])
        return cls(levels, counts)

    @cached_property
    def histogram_nll(self) -> np.ndarray:
        """-log p(level) at each position, (T, levels), with one added to each count."""
        smoothed = self.counts + 1.0
        return -np.log(smoothed / smoothed.sum(1, keepdims=True))

    def encode_images(self, images: Tensor) -> Tensor:
        """Bytes (B, C, H, W) -> ids (B, T), T = H W C."""
        import torch

        return torch.from_numpy(to_levels(images.cpu().numpy(), self.levels) + FIRST).to(images.device)

    def decode_images(self, ids: Tensor, shape: tuple[int, int, int]) -> np.ndarray:
        """Ids (B, T) -> bytes (B, C, H, W) of that shape: the lowest level is black, the highest white."""
        channels, height, width = shape
        values = (ids.cpu().numpy() - FIRST).clip(0) * 255 / (self.levels - 1)
        return values.round().astype(np.uint8).reshape(-1, height, width, channels).transpose(0, 3, 1, 2)

    def to_json(self) -> dict[str, Any]:
        return {"levels": self.levels, "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> PixelLevels:
        levels, counts = int(data["levels"]), np.array(data["counts"], np.int64)
        if counts.ndim != 2 or counts.shape[1] != levels or not 2 <= levels <= 256:
            raise UserError("tokenizer.json: the counts of pixel levels are damaged; copy the run again")
        return cls(levels, counts)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.vocabulary[number] for number in ids]


def to_levels(images: np.ndarray, levels: int) -> np.ndarray:
    """Bytes (N, C, H, W) -> levels (N, H W C) from 0 to levels - 1."""
    return (images.transpose(0, 2, 3, 1).reshape(len(images), -1).astype(np.int64) * levels) >> 8
