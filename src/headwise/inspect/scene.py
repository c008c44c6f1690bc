"""A run that reads images, and the image that one looks at it with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from headwise.blocks.evaluation import get_device
from headwise.errors import UserError
from headwise.inspect.image_maps import Gaze, Grid, of_encoder
from headwise.inspect.panels import ACROSS, SIDE, Box, Heat, Sheet, Tile, canvas
from headwise.tasks.classify_images import load_test_images
from headwise.vision.decode import shown, whole_pixels, window
from headwise.vision.pixels import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

    from headwise.inference.trained_model import TrainedModel

HELD_OUT = 64  # images to look at where none is given


@dataclass(frozen=True)
class Scene:
    """For most views there is one image. Layers and heads count from 1; `at` is a pixel x, y of the image's file."""

    loaded: TrainedModel
    source: str | Path | Image | None = None
    layer: int | None = None
    head: int | None = None
    at: tuple[int, int] | None = None

    @property
    def model(self) -> Any:
        return self.loaded.model

    @property
    def pixels(self) -> Pixels:
        pixels = self.loaded.tokenisers.source
        if not isinstance(pixels, Pixels) or not hasattr(self.model, "encoder"):
            raise UserError("only a single run that reads images has such a view; name another run")
        return pixels

    @cached_property
    def whole(self) -> Image:
        """The image as its file has it."""
        if self.source is None:
            raise UserError("there is no image to look at; name a file")
        return shown(self.source)

    @property
    def window(self) -> Box:
        """What the model is given of it: its middle."""
        return window(*self.whole.size, self.pixels.height, self.pixels.width)

    @cached_property
    def image(self) -> Image:
        return self.whole.crop(whole_pixels(self.window))

    @cached_property
    def read(self) -> Tensor:
        """The image as the model reads it, (1, C, H, W) bytes."""
        return self.pixels.read(self.whole)[None].to(get_device(self.model))

    def others(self) -> np.ndarray:
        """Some of the held-out images, (N, C, H, W) bytes: from all over the set, which may be sorted by label."""
        images = load_test_images(self.loaded.experiment.data, self.pixels)
        return images.pixels[np.linspace(0, len(images) - 1, min(HELD_OUT, len(images))).astype(int)]

    @cached_property
    def gazes(self) -> list[Gaze]:
        """Every attention of the encoder at the image."""
        found = of_encoder(self.model, self.pixels.normalised(self.read))
        if self.at is not None and all(gaze.asks is None for gaze in found):
            raise UserError("--at: here no patches ask, only others that look at them; leave it out")
        return found

    def numbered(self, found: Sequence[Gaze]) -> dict[int, Gaze]:
        """The layers that are to be shown, by number."""
        layers = dict(enumerate(found, 1))
        if self.layer is not None and self.layer not in layers:
            raise UserError(f"there is no layer {self.layer}; {len(layers)} of this model look at the image")
        return layers if self.layer is None else {self.layer: layers[self.layer]}

    def of_heads(self, weights: Tensor) -> Tensor:
        """The chosen head, or the mean of all: (H, ...) -> (...)."""
        if self.head is None:
            return weights.mean(0)
        if self.head > len(weights):
            raise UserError(f"there is no head {self.head}; this attention has {len(weights)} heads")
        return weights[self.head - 1]

    @property
    def which(self) -> str:
        return "mean of the heads" if self.head is None else f"head {self.head}"

    def asker(self, grid: Grid | None) -> Grid | None:
        """The place of a grid that `at` falls into."""
        if self.at is None or grid is None:
            return None
        x0, y0, x1, y1 = self.window
        across, down = (self.at[0] + 0.5 - x0) / (x1 - x0), (self.at[1] + 0.5 - y0) / (y1 - y0)
        if not (0 <= across < 1 and 0 <= down < 1):
            raise UserError(
                f"--at: the model does not see pixel {self.at[0]} {self.at[1]}; "
                f"x is from {x0:.0f} to {x1 - 1:.0f} and y from {y0:.0f} to {y1 - 1:.0f}"
            )
        return int(down * grid[0]), int(across * grid[1])

    def asks(self, gaze: Gaze) -> str:
        """Who asks, in words."""
        if self.asker(gaze.asks) is not None:
            return "of the framed patch"
        if gaze.class_tokens and (gaze.asks or gaze.by_marks):
            return "of the class token" if gaze.class_tokens == 1 else f"of the {gaze.class_tokens} class_tokens"
        return "of all tokens on average"

    def frames(self, gaze: Gaze) -> tuple[Box, ...]:
        """The patch that asks, in shares of the image."""
        place = self.asker(gaze.asks)
        if place is None or gaze.asks is None:
            return ()
        (row, column), (rows, columns) = place, gaze.asks
        return ((column / columns, row / rows, (column + 1) / columns, (row + 1) / rows),)

    def sheet(self, heats: Sequence[Heat | None], note: str, columns: int = 0) -> Sheet:
        """The image, and what lies over it in each tile: after it, or in rows of `columns` below it."""
        blanks: list[Heat | None] = [None] * (columns - 1)
        columns = columns or min(ACROSS, 1 + len(heats))
        side = min(SIDE, max(60.0, 900 / columns))
        ground = canvas(self.image, side)
        tiles = [None if each is None else each.tile(ground) for each in (*blanks, *heats)]
        numbers = [each.to_json() for each in heats if each is not None]
        return Sheet([Tile(ground, "image"), *tiles], columns, note, {"note": note, "maps": numbers}, side=side)
