"""Pictures of detections: boxes with labels on the image, and the attention map of each object query."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from headwise.inspect.files import open_figure
from headwise.inspect.panels import Box, overlay_weights, resize_for_tile
from headwise.vision.boxes import Detections
from headwise.vision.decode import round_box

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# distinguishable with colour blindness (after Okabe and Ito 2008)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#000000")
COLUMNS = 4  # panels per row
INCHES = 2.6  # width of a panel
MAX_ASPECT = 8  # longer images have margins


def draw_detections(
    path: Path,
    image: Image.Image,
    detections: Detections,
    maps: np.ndarray | None = None,
    crop: Box | None = None,
) -> Path:
    """Draw the image with its boxes; with attention maps (n, h, w), one more panel for each box. `crop` is the part of
    the image, x0 y0 x1 y1, that the model reads and that the maps cover."""
    colours = dict(zip(dict.fromkeys(sorted(detections.labels)), COLOURS * len(detections), strict=False))
    panels = 1 if maps is None else 1 + len(detections)
    columns = min(COLUMNS, panels)
    rows = ceil(panels / columns)
    side = INCHES if maps is not None else 2 * INCHES
    aspect = min(max(image.height / image.width, 1 / MAX_ASPECT), MAX_ASPECT)
    with open_figure(path, columns * side, rows * side * aspect) as figure:
        axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel in axes:
            panel.axis("off")
        draw_image(axes[0], image)
        for number in range(len(detections)):
            draw_box(axes[0], detections, number, colours[detections.labels[number]])
        for number, (panel, weights) in enumerate(zip(axes[1:], () if maps is None else maps, strict=False)):
            draw_image(panel, image)
            draw_attention(panel, image, weights, crop or (0, 0, *image.size))
            draw_box(panel, detections, number, colours[detections.labels[number]])
    return path


def draw_image(axes: Axes, image: Image.Image) -> None:
    """Draw the image without margins."""
    axes.imshow(np.asarray(image.convert("RGB")), extent=(0, image.width, image.height, 0), interpolation="nearest")
    axes.set(xlim=(0, image.width), ylim=(image.height, 0))


def draw_attention(axes: Axes, image: Image.Image, weights: np.ndarray, crop: Box) -> None:
    """Draw weights (h, w) over the part of the image that the model reads, as `headwise inspect` does."""
    x0, y0, x1, y1 = round_box(crop)
    pixels = overlay_weights(resize_for_tile(image.crop((x0, y0, x1, y1))), weights)
    axes.imshow(pixels, extent=(x0, x1, y1, y0), interpolation="nearest")


def draw_box(axes: Axes, detections: Detections, number: int, colour: str) -> None:
    """Draw one box with its label and score above it, or inside if there is no room above."""
    from matplotlib.patches import Rectangle

    x0, y0, x1, y1 = map(float, detections.corners[number])
    axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=colour, linewidth=1.8))
    tag: dict[str, Any] = {"boxstyle": "square,pad=0.15", "facecolor": colour, "edgecolor": colour}
    room = y0 > 0.06 * abs(axes.get_ylim()[0])
    text = f"{detections.labels[number]} {detections.scores[number]:.2f}"
    axes.text(
        x0, y0, text, size=7, color="white", bbox=tag, va="bottom" if room else "top", parse_math=False, clip_on=True
    )
