"""Scenes that are drawn: shapes in several colours and sizes, which cover each other, with exact boxes; or two shapes
and a caption that their geometry gives, "a red circle above a blue square".

A scene is a function of seed and number. Whoever trains on some numbers and tests on others has no scene twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from headwise.vision.boxes import Boxes
from headwise.vision.images import Images
from headwise.vision.workers import show_progress

Random = np.random.Generator
Points = list[tuple[float, float]]

VERSION = 1  # of how scenes are drawn; another number draws anew what is kept
SUPERSAMPLING = (
    4  # lines and columns that are drawn for each of the image: edges are smooth, boxes exact to a quarter pixel
)
MIN_VISIBLE = 0.4  # of a shape stays visible, whatever covers it
RADII = (0.09, 0.24)  # radii, as shares of the image's side
DIRECTION_RATIO = 1.6  # times as far in one direction as in the other: "above" is never "left of"

COLOURS = {
    "red": (214, 40, 40),
    "green": (46, 160, 67),
    "blue": (38, 84, 214),
    "yellow": (245, 209, 39),
    "purple": (139, 58, 176),
    "orange": (240, 125, 26),
}


OCCUPIED = [0, *[255] * 255]  # of an owner's number: whether there is one


def build_polygon(corners: int, *radii: float, turn: float = 0.0) -> Points:
    """Corners at equal angles, the first on top; their distances from the middle take turns."""
    angles = [2 * np.pi * (corner + turn) / corners for corner in range(corners)]
    return [(r * np.sin(a), -r * np.cos(a)) for a, r in zip(angles, radii * (corners // len(radii)), strict=True)]


# outlines in a circle of radius 1
SHAPES: dict[str, Points] = {
    "circle": build_polygon(48, 1.0),
    "square": build_polygon(4, 1.0, turn=0.5),
    "triangle": build_polygon(3, 1.0),
    "star": build_polygon(10, 1.0, 0.45),
    "cross": [(x * sx, y * sy) for sx, sy, turned in ((1, -1, 0), (1, 1, 1), (-1, 1, 0), (-1, -1, 1))
              for x, y in ((0.33, 0.94), (0.33, 0.33), (0.94, 0.33))[:: -1 if turned else 1]],
}  # fmt: skip


@dataclass(frozen=True)
class SceneShape:
    """One shape. Places and radii are shares of the image's side, y runs down."""

    shape: str
    colour: str
    x: float
    y: float
    radius: float
    turn: float = 0.0  # radians

    def __str__(self) -> str:
        return f"{'an' if self.colour[0] in 'aeiou' else 'a'} {self.colour} {self.shape}"

    def outline(self, side: int) -> Points:
        """Its corners in an image of this side."""
        sin, cos = np.sin(self.turn), np.cos(self.turn)
        turned = ((x * cos - y * sin, x * sin + y * cos) for x, y in SHAPES[self.shape])
        return [(side * (self.x + self.radius * x), side * (self.y + self.radius * y)) for x, y in turned]

    def area(self, side: int) -> float:
        """Its area in an image of this side, by the shoelace formula."""
        corners = SHAPES[self.shape]
        twice = sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairwise([*corners, corners[0]]))
        return abs(twice) / 2 * (self.radius * side) ** 2


def draw_scenes(name: str, count: int, size: int, seed: int = 1, start: int = 0) -> Images:
    """The scenes with `count` numbers from `start`."""
    numbers = range(start, start + count)
    made = (SCENE_KINDS[name](size, seed, number) for number in numbers)
    pixels, targets = zip(*show_progress(made, count, f"drawing {name}"), strict=True)
    return Images(np.stack(pixels), targets, [f"{name} {seed}.{number}" for number in numbers])


def draw_boxed(size: int, seed: int, number: int, most: int = 5) -> tuple[np.ndarray, Boxes]:
    """One to `most` shapes, later ones over earlier ones: pixels (3, size, size), and the box of what is visible of
    each. No shape is covered by more than 1 - `LEAST`, and none of one colour meet."""
    random = np.random.default_rng([seed, number, 0])
    things: list[SceneShape] = []
    for new in (draw_shape(random) for _ in range(random.integers(1, most + 1))):
        blends = any(new.colour == old.colour and overlap(new, old) for old in things)
        if not blends and min(measure_visible([*things, new])) >= MIN_VISIBLE:
            things.append(new)
    owners = np.asarray(paint_shapes(things, size))
    corners = [compute_extent(owners == place) for place in range(1, len(things) + 1)]
    labels = tuple(each.shape for each in things)
    return render(things, size, random), Boxes(np.array(corners) / SUPERSAMPLING, labels)


def draw_captioned(size: int, seed: int, number: int) -> tuple[np.ndarray, str]:
    """Two shapes that do not meet: pixels (3, size, size), and where the larger one is, seen from the smaller."""
    random = np.random.default_rng([seed, number, 1])
    large, small = next(
        (large, small)
        for large, small in ((draw_shape(random, 0.17, 0.25), draw_shape(random, 0.09, 0.12)) for _ in count())
        if str(large) != str(small) and is_unambiguous(large, small)
    )
    return render([large, small], size, random), f"{large} {describe_relation(large, small)} {small}"


SCENE_KINDS: dict[str, Callable[[int, int, int], tuple[np.ndarray, Any]]] = {
    "scenes": draw_boxed,
    "scene-captions": draw_captioned,
}


def draw_shape(random: Random, least: float = RADII[0], most: float = RADII[1]) -> SceneShape:
    """Any shape that is inside the image."""
    radius = random.uniform(least, most)
    x, y = random.uniform(radius, 1 - radius, 2)
    shape, colour = (str(random.choice(list(names))) for names in (SHAPES, COLOURS))
    return SceneShape(shape, colour, x, y, radius, random.uniform(-0.3, 0.3))


def overlap(a: SceneShape, b: SceneShape) -> bool:
    """Whether the circles around them do."""
    return bool(np.hypot(a.x - b.x, a.y - b.y) < a.radius + b.radius)


def is_unambiguous(a: SceneShape, b: SceneShape) -> bool:
    """Whether they do not meet, and one word says where one is, seen from the other."""
    across, down = abs(a.x - b.x), abs(a.y - b.y)
    return not overlap(a, b) and max(across, down) > DIRECTION_RATIO * min(across, down)


def describe_relation(a: SceneShape, b: SceneShape) -> str:
    """Where `a` is, seen from `b`."""
    if abs(a.x - b.x) > abs(a.y - b.y):
        return "left of" if a.x < b.x else "right of"
    return "above" if a.y < b.y else "below"


def paint_shapes(things: Iterable[SceneShape], size: int) -> Image.Image:
    """Whose each point is, `FINER` points to a pixel: 0 nobody's, else the number of a thing from 1."""
    canvas = Image.new("P", (SUPERSAMPLING * size, SUPERSAMPLING * size))
    pen = ImageDraw.Draw(canvas)
    for number, each in enumerate(things, 1):
        pen.polygon(each.outline(SUPERSAMPLING * size), fill=number)
    return canvas


def measure_visible(things: Sequence[SceneShape], size: int = 24) -> list[float]:
    """Which share of each thing is not covered by later ones: about, and the same for images of all sizes."""
    seen = paint_shapes(things, size).histogram()
    return [seen[number] / each.area(SUPERSAMPLING * size) for number, each in enumerate(things, 1)]


def compute_extent(mask: np.ndarray) -> list[int]:
    """x0 y0 x1 y1 of the points that are True."""
    columns, rows = (np.flatnonzero(mask.any(axis)) for axis in (0, 1))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


def render(things: Sequence[SceneShape], size: int, random: Random) -> np.ndarray:
    """The image, (3, size, size) uint8."""
    canvas = paint_shapes(things, size)
    colours = [np.add(COLOURS[each.colour], random.integers(-14, 15, 3)).clip(0, 255) for each in things]
    canvas.putpalette(np.concatenate([np.zeros(3, int), *colours]).astype(np.uint8).tobytes())
    front = np.asarray(canvas.convert("RGB").reduce(SUPERSAMPLING), float)  # black where nobody is
    covered = np.asarray(canvas.point(OCCUPIED, "L").reduce(SUPERSAMPLING), float)[..., None] / 255
    picture = front + (1 - covered) * draw_background(random, size) + random.normal(0, 3, (size, size, 1))
    return picture.round().clip(0, 255).astype(np.uint8).transpose(2, 0, 1)  # (H, W, C) -> (C, H, W)


def draw_plain(random: Random, size: int) -> np.ndarray:
    return np.zeros((size, size))


def draw_slope(random: Random, size: int) -> np.ndarray:
    return draw_stripes(random, size, waves=0.25)


def draw_stripes(random: Random, size: int, waves: float = 0.0) -> np.ndarray:
    """Waves of one direction, as many as are asked for or else some."""
    angle, phase = random.uniform(0, 2 * np.pi, 2)
    y, x = np.mgrid[:size, :size] / size
    waves = waves or random.uniform(2, 6)
    return np.sin(2 * np.pi * waves * (x * np.cos(angle) + y * np.sin(angle)) + phase)


def draw_clouds(random: Random, size: int) -> np.ndarray:
    """Random numbers on a coarse grid, and smoothly between them."""
    coarse = Image.fromarray(random.uniform(-1, 1, (6, 6)).astype(np.float32))
    return np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC))


BACKGROUNDS: tuple[Callable[[Random, int], np.ndarray], ...] = (draw_plain, draw_slope, draw_stripes, draw_clouds)


def draw_background(random: Random, size: int) -> np.ndarray:
    """What is behind the shapes, (size, size, 3): a dull colour, plain or with a pattern."""
    pattern = BACKGROUNDS[random.integers(len(BACKGROUNDS))](random, size)[..., None]
    grey, contrast = random.uniform(70, 190), random.uniform(10, 30)
    tint = random.uniform(-15, 15, 3)
    return grey + tint + contrast * pattern
