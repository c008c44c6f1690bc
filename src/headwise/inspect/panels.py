"""Sheets of small pictures: images with weights over them, filters, tables of places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path as File
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.blocks.grid import WindowPartition
from headwise.inspect import colour
from headwise.inspect.colour import Pixels, Scale
from headwise.inspect.files import save
from headwise.inspect.pictures import MARGIN, scale_bar
from headwise.inspect.svg import Drawing, Path, Picture, Rect, Shape, Text, text_width

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

Weights = NDArray[np.floating]
Line = tuple[tuple[float, float], ...]
Box = tuple[float, float, float, float]
ACROSS = 7  # tiles in a row
SIDE, GAP, NAMED = 132.0, 14.0, 18.0  # of a tile, between tiles, above a tile that has a name
BLUE = np.array([11, 58, 115])  # the dark end of the scale of weights
DENSITY = 2  # pixels of an image for each unit of a drawing


@dataclass(frozen=True, eq=False)
class Tile:
    """One picture. Lines and boxes (x0 y0 x1 y1) are in shares of it."""

    pixels: Pixels  # (rows, columns, 3)
    name: str = ""
    note: str = ""
    lines: tuple[Line, ...] = ()
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True, eq=False)
class Heat:
    """Weights on a grid, to lie over an image; windows in which they were computed, and boxes."""

    name: str
    heat: Tensor  # (h, w)
    tiling: WindowPartition | None = None
    boxes: tuple[Box, ...] = ()
    relative: bool = False  # colours begin at the least weight, not at none

    @property
    def weights(self) -> Weights:
        return self.heat.float().cpu().numpy()

    def tile(self, ground: Pixels) -> Tile:
        """The image with the weights over it."""
        low, high = float(self.weights.min()) if self.relative else 0.0, float(self.weights.max())
        note = f"{low:.2g} to {high:.2g}" if self.relative else f"max {high:.2g}"
        lines = () if self.tiling is None else borders(self.tiling)
        return Tile(covered(ground, self.weights, low), self.name, note, lines, self.boxes)

    def to_json(self) -> dict[str, Any]:
        boxes = {"boxes": [[round(side, 4) for side in box] for box in self.boxes]} if self.boxes else {}
        return {"name": self.name, "weights": self.weights.round(5).tolist(), **boxes}


@dataclass(frozen=True, eq=False)
class Sheet:
    """Tiles in rows of `columns`, the first of which is there; `numbers` are what they show."""

    tiles: Sequence[Tile | None]
    columns: int
    note: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    scale: Scale | None = None
    side: float = SIDE
    gap: float = GAP

    def to_json(self) -> dict[str, Any]:
        return self.numbers

    def table(self) -> str:
        return ""

    def save(self, out: File, title: str) -> File:
        return save(self.drawing(title), out)

    def drawing(self, title: str) -> Drawing:
        there = {number: tile for number, tile in enumerate(self.tiles) if tile is not None}
        rows, columns = there[0].pixels.shape[:2]
        high = self.side * rows / columns
        named = NAMED if any(tile.name or tile.note for tile in there.values()) else 0.0
        top, step = 76.0, high + self.gap + named
        shapes: list[Shape] = [Text(MARGIN, 36, title, 19, bold=True), Text(MARGIN, 58, self.note, 12.5, colour.SOFT)]
        for number, tile in there.items():
            down, right = divmod(number, self.columns)
            shapes += drawn(tile, MARGIN + right * (self.side + self.gap), top + named + down * step, self.side, high)
        end = MARGIN + min(len(self.tiles), self.columns) * (self.side + self.gap)
        below = top + ceil(len(self.tiles) / self.columns) * step - self.gap
        if self.scale is not None:
            shapes += scale_bar(end + 12, top + named, min(below - top - named, 200), *self.scale)
            end += 76
        wide = max(end - self.gap, *(MARGIN + text_width(*line) for line in ((title, 19), (self.note, 12.5))))
        return Drawing(wide + MARGIN, below + MARGIN, tuple(shapes), title)


def drawn(tile: Tile, x: float, y: float, wide: float, high: float) -> list[Shape]:
    """A tile at a place, its name above it."""
    corners = [(x + x0 * wide, y + y0 * high, (x1 - x0) * wide, (y1 - y0) * high) for x0, y0, x1, y1 in tile.boxes]
    return [
        Text(x, y - 6, tile.name, 11),
        Text(x + wide, y - 6, tile.note, 10, colour.SOFT, "end"),
        Picture(x, y, wide, high, tile.pixels),
        *(Path(tuple((x + a * wide, y + b * high) for a, b in line), colour.PAPER, 1.0) for line in tile.lines),
        *(Rect(*corner, stroke=colour.ACCENT, line=1.6) for corner in corners),
        Rect(x, y, wide, high, stroke=colour.FAINT),
    ]


def canvas(image: Image, side: float = SIDE) -> Pixels:
    """An image as wide as a tile shows it, or some times as wide: (rows, columns, 3)."""
    from PIL import Image as pillow

    wide = round(DENSITY * side)
    times = ceil(wide / image.width)
    if times > 1:
        resized = image.resize((times * image.width, times * image.height), pillow.Resampling.NEAREST)
    else:
        resized = image.resize((wide, round(wide * image.height / image.width)), pillow.Resampling.LANCZOS)
    return np.asarray(resized.convert("RGB"))


def covered(pixels: Pixels, weights: Weights, low: float = 0.0) -> Pixels:
    """Weights (h, w) in blue over a pale image in grey (rows, columns, 3), from `low` to the largest."""
    rows, columns = pixels.shape[:2]
    down, right = (np.arange(side) * cells // side for side, cells in zip((rows, columns), weights.shape, strict=True))
    alpha = 0.85 * np.clip((weights - low) / max(float(weights.max()) - low, 1e-9), 0, 1)[down][:, right, None]
    grey = pixels @ np.array([0.299, 0.587, 0.114])
    pale = 175 + grey[..., None] * (80 / 255)  # dark enough to be seen, light enough for what lies over it
    return ((1 - alpha) * pale + alpha * BLUE).round().astype(np.uint8)


def borders(tiling: WindowPartition) -> tuple[Line, ...]:
    """Where windows meet, in shares of the image."""
    lines: list[Line] = []
    for axis, (side, window, shift) in enumerate(zip(tiling.grid, tiling.window, tiling.shift, strict=True)):
        starts = range(shift or window, side, window)
        ends = [((0.0, start / side), (1.0, start / side)) for start in starts]
        lines += ends if axis == 0 else [tuple((b, a) for a, b in line) for line in ends]
    return tuple(lines)
