"""Contact sheets: tiles with heat maps over an image, filters, and position embeddings."""

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
from headwise.inspect.pictures import MARGIN, draw_colour_bar
from headwise.inspect.svg import Drawing, Path, Picture, Rect, Shape, Text, text_width

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

Weights = NDArray[np.floating]
Line = tuple[tuple[float, float], ...]
Box = tuple[float, float, float, float]
COLUMNS = 7  # tiles per row
SIDE, GAP, NAME_HEIGHT = 132.0, 14.0, 18.0  # width of a tile, space between tiles, space for a name above a tile
BLUE = np.array([11, 58, 115])  # the dark end of the colour scale
DENSITY = 2  # image pixels per unit of a drawing


@dataclass(frozen=True, eq=False)
class Tile:
    """One picture of a sheet. Lines and boxes (x0 y0 x1 y1) are relative to its size."""

    pixels: Pixels  # (rows, columns, 3)
    name: str = ""
    note: str = ""
    lines: tuple[Line, ...] = ()
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Heat map of weights on a grid, to be drawn over an image with the borders of attention windows and boxes."""

    name: str
    values: Tensor  # (h, w)
    partition: WindowPartition | None = None
    boxes: tuple[Box, ...] = ()
    relative: bool = False  # the colour scale begins at the smallest weight instead of 0

    @property
    def weights(self) -> Weights:
        return self.values.float().cpu().numpy()

    def draw_over(self, pixels: Pixels) -> Tile:
        """Draw the weights over the image."""
        low, high = float(self.weights.min()) if self.relative else 0.0, float(self.weights.max())
        note = f"{low:.2g} to {high:.2g}" if self.relative else f"max {high:.2g}"
        lines = () if self.partition is None else compute_window_borders(self.partition)
        return Tile(overlay_weights(pixels, self.weights, low), self.name, note, lines, self.boxes)

    def to_json(self) -> dict[str, Any]:
        boxes = {"boxes": [[round(side, 4) for side in box] for box in self.boxes]} if self.boxes else {}
        return {"name": self.name, "weights": self.weights.round(5).tolist(), **boxes}


@dataclass(frozen=True, eq=False)
class Sheet:
    """Tiles in rows of `columns`; None leaves a cell empty, except the first. `numbers` is the content as JSON."""

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
        return save(self.draw(title), out)

    def draw(self, title: str) -> Drawing:
        """Draw the tiles below the title, with the colour bar to the right."""
        tiles = {number: tile for number, tile in enumerate(self.tiles) if tile is not None}
        rows, columns = tiles[0].pixels.shape[:2]
        height = self.side * rows / columns
        name_height = NAME_HEIGHT if any(tile.name or tile.note for tile in tiles.values()) else 0.0
        top, step = 76.0 + name_height, height + self.gap + name_height
        shapes: list[Shape] = [Text(MARGIN, 36, title, 19, bold=True), Text(MARGIN, 58, self.note, 12.5, colour.SOFT)]
        for number, tile in tiles.items():
            row, column = divmod(number, self.columns)
            x, y = MARGIN + column * (self.side + self.gap), top + row * step
            shapes += draw_tile(tile, x, y, self.side, height)
        right = MARGIN + min(len(self.tiles), self.columns) * (self.side + self.gap)
        bottom = top + ceil(len(self.tiles) / self.columns) * step - self.gap - name_height
        if self.scale is not None:
            shapes += draw_colour_bar(right + 12, top, min(bottom - top, 200), *self.scale)
            right += 76
        width = max(right - self.gap, *(MARGIN + text_width(*line) for line in ((title, 19), (self.note, 12.5))))
        return Drawing(width + MARGIN, bottom + MARGIN, tuple(shapes), title)


def draw_tile(tile: Tile, x: float, y: float, wide: float, high: float) -> list[Shape]:
    """Draw a tile at (x, y) with its name above it."""
    corners = [(x + x0 * wide, y + y0 * high, (x1 - x0) * wide, (y1 - y0) * high) for x0, y0, x1, y1 in tile.boxes]
    return [
        Text(x, y - 6, tile.name, 11),
        Text(x + wide, y - 6, tile.note, 10, colour.SOFT, "end"),
        Picture(x, y, wide, high, tile.pixels),
        *(Path(tuple((x + a * wide, y + b * high) for a, b in line), colour.PAPER, 1.0) for line in tile.lines),
        *(Rect(*corner, stroke=colour.ACCENT, line=1.6) for corner in corners),
        Rect(x, y, wide, high, stroke=colour.FAINT),
    ]


def resize_for_tile(image: Image, side: float = SIDE) -> Pixels:
    """Resize an image to the width of a tile, small ones by a whole factor: (rows, columns, 3)."""
    from PIL import Image as pillow

    wide = round(DENSITY * side)
    times = ceil(wide / image.width)
    if times > 1:
        resized = image.resize((times * image.width, times * image.height), pillow.Resampling.NEAREST)
    else:
        resized = image.resize((wide, round(wide * image.height / image.width)), pillow.Resampling.LANCZOS)
    return np.asarray(resized.convert("RGB"))


def overlay_weights(pixels: Pixels, weights: Weights, low: float = 0.0) -> Pixels:
    """Overlay weights (h, w) in blue, from `low` to the largest, on a pale grey version of the image (rows, columns,
    3)."""
    rows, columns = pixels.shape[:2]
    down, right = (np.arange(side) * cells // side for side, cells in zip((rows, columns), weights.shape, strict=True))
    alpha = 0.85 * np.clip((weights - low) / max(float(weights.max()) - low, 1e-9), 0, 1)[down][:, right, None]
    grey = pixels @ np.array([0.299, 0.587, 0.114])
    pale = 175 + grey[..., None] * (80 / 255)  # still visible, but lighter than any overlay
    return ((1 - alpha) * pale + alpha * BLUE).round().astype(np.uint8)


def compute_window_borders(partition: WindowPartition) -> tuple[Line, ...]:
    """Borders between attention windows, relative to the image size."""
    lines: list[Line] = []
    for axis, (side, window, shift) in enumerate(zip(partition.grid, partition.window, partition.shift, strict=True)):
        starts = range(shift or window, side, window)
        ends = [((0.0, start / side), (1.0, start / side)) for start in starts]
        lines += ends if axis == 0 else [tuple((b, a) for a, b in line) for line in ends]
    return tuple(lines)
