"""What to inspect of an image model: the run, an image, a layer, a head and a query."""

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
from headwise.inspect.image_maps import Grid, ImageAttention, record_encoder_attention
from headwise.inspect.panels import COLUMNS, SIDE, Box, HeatMap, Sheet, Tile, resize_for_tile
from headwise.tasks.classify_images import load_test_images
from headwise.vision.decode import load_upright, round_box
from headwise.vision.pixels import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

    from headwise.inference.trained_model import TrainedModel

HELD_OUT = 64  # images that are used if none is given


@dataclass(frozen=True)
class ImageInspection:
    """A run, one image for most views, and the selection of layer and head, both counted from 1. `at` is the pixel
    (x, y) of the image file whose patch is the query."""

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
            raise UserError("this view needs a single run whose model reads images; name another run")
        return pixels

    @cached_property
    def full_image(self) -> Image:
        """The image before it is cropped."""
        if self.source is None:
            raise UserError("there is no image to look at; name a file")
        return load_upright(self.source)

    @property
    def crop_box(self) -> Box:
        """The centre crop that the model reads."""
        return self.pixels.compute_crop(*self.full_image.size)

    @cached_property
    def image(self) -> Image:
        return self.full_image.crop(round_box(self.crop_box))

    @cached_property
    def model_input(self) -> Tensor:
        """The image in the size that the model reads, (1, C, H, W) bytes."""
        return self.pixels.read(self.full_image)[None].to(get_device(self.model))

    def sample_held_out(self) -> np.ndarray:
        """Sample held-out images, (N, C, H, W) bytes, evenly over the set, which may be sorted by label."""
        images = load_test_images(self.loaded.data, self.pixels)
        return images.pixels[np.linspace(0, len(images) - 1, min(HELD_OUT, len(images))).astype(int)]

    @cached_property
    def attentions(self) -> list[ImageAttention]:
        """The encoder's attention over the image, layer by layer."""
        attentions = record_encoder_attention(self.model, self.pixels.normalise_images(self.model_input))
        if self.at is not None and all(attention.query_grid is None for attention in attentions):
            raise UserError("--at: in this model no patch is a query; leave it out")
        return attentions

    def select_layers(self, attentions: Sequence[ImageAttention]) -> dict[int, ImageAttention]:
        """Select the layers to be shown, by number."""
        layers = dict(enumerate(attentions, 1))
        if self.layer is not None and self.layer not in layers:
            raise UserError(f"there is no layer {self.layer}; this model has {len(layers)} that attend to the image")
        return layers if self.layer is None else {self.layer: layers[self.layer]}

    def reduce_heads(self, weights: Tensor) -> Tensor:
        """Select the head, or average over all heads: (H, ...) -> (...)."""
        if self.head is None:
            return weights.mean(0)
        if self.head > len(weights):
            raise UserError(f"there is no head {self.head}; this attention has {len(weights)} heads")
        return weights[self.head - 1]

    @property
    def head_name(self) -> str:
        return "mean of the heads" if self.head is None else f"head {self.head}"

    def locate_query(self, grid: Grid | None) -> Grid | None:
        """Row and column of the patch at pixel `at`."""
        if self.at is None or grid is None:
            return None
        x0, y0, x1, y1 = self.crop_box
        across, down = (self.at[0] + 0.5 - x0) / (x1 - x0), (self.at[1] + 0.5 - y0) / (y1 - y0)
        if not (0 <= across < 1 and 0 <= down < 1):
            raise UserError(
                f"--at: the model does not see pixel {self.at[0]} {self.at[1]}; "
                f"x is from {x0:.0f} to {x1 - 1:.0f} and y from {y0:.0f} to {y1 - 1:.0f}"
            )
        return int(down * grid[0]), int(across * grid[1])

    def describe_query(self, attention: ImageAttention) -> str:
        """Describe the query for a caption."""
        if self.locate_query(attention.query_grid) is not None:
            return "of the framed patch"
        count = attention.class_tokens
        if count and (attention.query_grid or attention.is_class_attention):
            return "of the class token" if count == 1 else f"of the {count} class tokens"
        return "averaged over all tokens"

    def frame_query(self, attention: ImageAttention) -> tuple[Box, ...]:
        """The box of the query patch, relative to the image size."""
        place = self.locate_query(attention.query_grid)
        if place is None or attention.query_grid is None:
            return ()
        (row, column), (rows, columns) = place, attention.query_grid
        return ((column / columns, row / rows, (column + 1) / columns, (row + 1) / rows),)

    def build_sheet(self, maps: Sequence[HeatMap | None], note: str, columns: int = 0) -> Sheet:
        """Draw the image and its heat maps as tiles: in one sequence, or in rows of `columns` below the image."""
        blanks: list[HeatMap | None] = [None] * (columns - 1)
        columns = columns or min(COLUMNS, 1 + len(maps))
        side = min(SIDE, max(60.0, 900 / columns))
        pixels = resize_for_tile(self.image, side)
        tiles = [None if heat_map is None else heat_map.draw_over(pixels) for heat_map in (*blanks, *maps)]
        numbers = [heat_map.to_json() for heat_map in maps if heat_map is not None]
        return Sheet([Tile(pixels, "image"), *tiles], columns, note, {"note": note, "maps": numbers}, side=side)
