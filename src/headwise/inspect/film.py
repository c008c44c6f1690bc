"""Episodes as pictures: an animated GIF, or a strip of some frames as a PNG or SVG, with what the agent made of them.

Letters: H rows and W columns of a frame, K patches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from headwise.inspect import colour
from headwise.inspect.files import check_ending, save
from headwise.inspect.svg import Drawing, Picture, Rect, Shape, Text
from headwise.utils.files import write

if TYPE_CHECKING:
    from headwise.worlds.rollout import Film
    from headwise.worlds.step_view import StepView

STRIP = 10  # frames of a strip
SMALLEST = 256  # pixels of a frame's smaller side in a GIF; smaller frames are enlarged by whole numbers
FRAMES_PER_SECOND = 12
SIDE, GAP, CAPTION = 160, 8, 20  # pixels: a frame in a strip, between frames, and below them for a caption
BARS = 28  # pixels: height of the bars of attention to past steps
FAINTEST = 0.3  # opacity of the least important patch
HEAT = np.array([255, 110, 0])  # colour of places with much attention
STRONGEST = 0.55  # opacity of the heat


def write_film(film: Film, path: Path) -> Path:
    """Write an episode as .gif, or as .png or .svg with frames at equal distances, the first and the last included."""
    check_ending(path, ".gif", ".png", ".svg")
    if path.suffix.lower() != ".gif":
        return save(draw_strip(film), path)
    views: Sequence[StepView | None] = film.views or [None] * len(film.frames)
    pictures = (mark_frame(enlarge(frame), view) for frame, view in zip(film.frames, views, strict=True))
    first, *rest = map(Image.fromarray, pictures)
    file = BytesIO()
    options = {"save_all": True, "append_images": rest, "loop": 0, "duration": 1000 // FRAMES_PER_SECOND}
    first.save(file, "GIF", **options)
    return write(path, file.getvalue())


def enlarge(frame: np.ndarray) -> np.ndarray:
    """A frame (H, W, 3) whose pixels are repeated, so that it can be seen."""
    times = max(1, SMALLEST // min(frame.shape[:2]))
    return frame.repeat(times, 0).repeat(times, 1)


def fade(count: int) -> np.ndarray:
    """The opacity of patches, the most important first."""
    return np.linspace(1, FAINTEST, count)


def overlay_importance(frame: np.ndarray, view: StepView) -> np.ndarray:
    """A frame with heat where patches get more attention than the average one; a pixel has that of the nearest."""
    importance, sides = view.importance, view.patches[0, 2:]  # of a patch, as shares of the frame
    rows, columns = (
        np.rint(((np.arange(size) + 0.5) / size - side / 2) / max(1 - side, 1e-9) * (count - 1))
        .clip(0, count - 1)
        .astype(int)
        for size, side, count in zip(frame.shape[:2], sides, importance.shape, strict=True)
    )
    above = np.maximum(importance - importance.mean(), 0)
    share = STRONGEST * (above / max(float(above.max()), 1e-9))[np.ix_(rows, columns)][..., None]
    return ((1 - share) * frame + share * HEAT).astype(np.uint8)


def mark_frame(frame: np.ndarray, view: StepView | None) -> np.ndarray:
    """A frame with heat, white outlines of the chosen patches, and bars of attention to past steps below."""
    if view is None:
        return frame
    height, width = frame.shape[:2]
    if view.importance.size:
        frame = overlay_importance(frame, view)
    for patch, opacity in reversed(list(zip(view.patches, fade(len(view.patches)), strict=True))):
        top, left, high, wide = np.rint(patch * (height, width, height, width)).astype(int)
        outline = np.zeros((height, width), bool)
        outline[top : top + high, left : left + wide] = True
        outline[top + 2 : top + high - 2, left + 2 : left + wide - 2] = False
        frame[outline] = (opacity * 255 + (1 - opacity) * frame[outline]).astype(np.uint8)
    if not view.past.size:
        return frame
    below = np.full((BARS, width, 3), 255, np.uint8)
    for left, top, wide, high in place_bars(view.past.mean(0), width):
        box = (slice(round(top), round(top + high)), slice(round(left), max(round(left) + 1, round(left + wide) - 1)))
        below[box] = (47, 93, 159)
    return np.concatenate((frame, below))


def place_bars(weights: np.ndarray, width: float) -> Iterator[tuple[float, float, float, float]]:
    """Bars of weights, the last at the right: left, top, width and height of each."""
    step = width / len(weights)
    for number, weight in enumerate(weights / max(float(weights.max()), 1e-9)):
        high = (BARS - 4) * float(weight)
        yield number * step, BARS - high, step, high


def draw_strip(film: Film) -> Drawing:
    """Some frames beside one another, with the number of the step and the return so far."""
    count = len(film.frames)
    chosen = np.unique(np.linspace(0, count - 1, STRIP).round().astype(int)).tolist()
    returns = np.concatenate(([0.0], np.cumsum(film.episode.rewards, dtype=np.float64)))
    shapes, left, bottom = list[Shape](), float(GAP), 0.0
    for number in chosen:
        view = film.views[number] if film.views else None
        drawn, width, height = draw_frame(film.frames[number], view, left)
        caption = f"{number + 1}: {returns[number]:.4g}"
        shapes += [*drawn, Text(left + width / 2, height + CAPTION - 6, caption, 11, colour.SOFT, "middle")]
        left, bottom = left + width + GAP, max(bottom, height + CAPTION)
    title = f"{len(chosen)} of {count} steps, with the return so far; return {film.episode.total:.4g}"
    return Drawing(left, bottom, tuple(shapes), title)


def draw_frame(frame: np.ndarray, view: StepView | None, left: float) -> tuple[list[Shape], float, float]:
    """The shapes of a frame, its width, and the row below it."""
    height, width = float(SIDE), SIDE * frame.shape[1] / frame.shape[0]
    if view is None:
        return [Picture(left, GAP, width, height, frame)], width, GAP + height
    if view.importance.size:
        frame = overlay_importance(frame, view)
    shapes: list[Shape] = [Picture(left, GAP, width, height, frame)]
    for (row, column, high, wide), opacity in zip(view.patches, fade(len(view.patches)), strict=True):
        grey = round(255 * opacity)
        x, y = left + width * float(column), GAP + height * float(row)
        outline = f"#{grey:02x}{grey:02x}{grey:02x}"
        shapes.append(Rect(x, y, width * float(wide), height * float(high), stroke=outline, line=1.5))
    bottom = GAP + height
    if view.past.size:
        for x, y, wide, high in place_bars(view.past.mean(0), width):
            shapes.append(Rect(left + x, bottom + y, max(wide - 1, 0.5), high, fill=colour.WEIGHTS[3]))
        bottom += BARS
    return shapes, width, bottom
