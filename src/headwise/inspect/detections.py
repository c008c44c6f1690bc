"""Pictures of detections: boxes with labels on the image, and where the slot of each looked."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from headwise.inspect.files import figure
from headwise.inspect.panels import Box, canvas, covered
from headwise.vision.boxes import Detections
from headwise.vision.decode import round_box

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# told apart by people who see no red or no green as well (after Okabe and Ito 2008)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#000000")
ACROSS = 4  # panels in a row
INCHES = 2.6  # of a panel
LONGEST = 8  # times as long as wide, or as wide as long, a panel may be; other images have margins


def draw(
    path: Path,
    image: Image.Image,
    found: Detections,
    maps: np.ndarray | None = None,
    seen: Box | None = None,
) -> Path:
    """The image with its boxes; with `maps` (n, h, w), a further panel for each box with where its slot looked. `seen`
    is the part of the image, x0 y0 x1 y1, that the model was given: the maps lie over it."""
    colours = dict(zip(dict.fromkeys(sorted(found.labels)), COLOURS * len(found), strict=False))
    panels = 1 if maps is None else 1 + len(found)
    across = min(ACROSS, panels)
    down = ceil(panels / across)
    side = INCHES if maps is not None else 2 * INCHES
    ratio = min(max(image.height / image.width, 1 / LONGEST), LONGEST)
    with figure(path, across * side, down * side * ratio) as drawn:
        axes: list[Axes] = list(drawn.subplots(down, across, squeeze=False).flat)
        for each in axes:
            each.axis("off")
        plain(axes[0], image)
        for number in range(len(found)):
            box(axes[0], found, number, colours[found.labels[number]])
        for number, (panel, weights) in enumerate(zip(axes[1:], () if maps is None else maps, strict=False)):
            plain(panel, image)
            draw_attention(panel, image, weights, seen or (0, 0, *image.size))
            box(panel, found, number, colours[found.labels[number]])
    return path


def plain(axes: Axes, image: Image.Image) -> None:
    """The image, and nothing beyond it."""
    axes.imshow(np.asarray(image.convert("RGB")), extent=(0, image.width, image.height, 0), interpolation="nearest")
    axes.set(xlim=(0, image.width), ylim=(image.height, 0))


def draw_attention(axes: Axes, image: Image.Image, weights: np.ndarray, seen: Box) -> None:
    """Weights (h, w) over the part of the image that was given to the model, as `headwise inspect` draws them."""
    x0, y0, x1, y1 = round_box(seen)
    pixels = covered(canvas(image.crop((x0, y0, x1, y1))), weights)
    axes.imshow(pixels, extent=(x0, x1, y1, y0), interpolation="nearest")


def box(axes: Axes, found: Detections, number: int, colour: str) -> None:
    """One box with its label and score above it, or inside where there is no room above."""
    from matplotlib.patches import Rectangle

    x0, y0, x1, y1 = map(float, found.corners[number])
    axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=colour, linewidth=1.8))
    tag: dict[str, Any] = {"boxstyle": "square,pad=0.15", "facecolor": colour, "edgecolor": colour}
    room = y0 > 0.06 * abs(axes.get_ylim()[0])
    text = f"{found.labels[number]} {found.scores[number]:.2f}"
    axes.text(
        x0, y0, text, size=7, color="white", bbox=tag, va="bottom" if room else "top", parse_math=False, clip_on=True
    )
