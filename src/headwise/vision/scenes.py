"""Generated scenes: shapes of several colours and sizes that occlude each other, with exact boxes; or two shapes and a
caption of their relative position, "a red circle above a blue square".

A scene is a function of seed and number, so different numbers give disjoint training and test parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np
from PIL import Image, ImageDraw

from headwise.vision.boxes import Boxes
from headwise.vision.images import Images
from headwise.vision.workers import show_progress

Random = np.random.Generator
Points = list[tuple[float, float]]

VERSION = 1  # of how scenes are drawn; another number generates cached ones anew
SUPERSAMPLING = 4  # per side of a pixel: edges are antialiased, boxes exact to a quarter of a pixel
MIN_VISIBLE = 0.4  # of the area of a shape, whatever occludes it
RADII = (0.09, 0.24)  # as shares of the image's side
DIRECTION_RATIO = 1.6  # of the larger offset to the smaller: "above" is never "left of"

COLOURS = {
    "red": (214, 40, 40),
    "green": (46, 160, 67),
    "blue": (38, 84, 214),
    "yellow": (245, 209, 39),
    "purple": (139, 58, 176),
    "orange": (240, 125, 26),
}


OCCUPIED = [0, *[255] * 255]  # lookup table from the number of a shape: 255 unless it is background


def build_polygon(corners: int, *radii: float, turn: float = 0.0) -> Points:
    """Corners at equal angles, the first on top, with the radii in turn."""
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
    """One shape of a scene. Centre and radius are shares of the image's side, y points down."""

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


def draw_scenes(name: str, count: int, size: int, seed: int = 1, start: int = 0) -> Images[Boxes | str]:
    """Draw the scenes with `count` numbers from `start`."""
    numbers = range(start, start + count)
    scenes = (SCENE_KINDS[name](size, seed, number) for number in numbers)
    pixels, targets = zip(*show_progress(scenes, count, f"drawing {name}"), strict=True)
    return Images(np.stack(pixels), targets, [f"{name} {seed}.{number}" for number in numbers])


def draw_boxed(size: int, seed: int, number: int, most: int = 5) -> tuple[np.ndarray, Boxes]:
    """Draw one to `most` shapes, later ones over earlier ones: pixels (3, size, size), and the box of the visible part
    of each. At least `MIN_VISIBLE` of a shape is visible, and shapes of one colour do not overlap."""
    random = np.random.default_rng([seed, number, 0])
    shapes: list[SceneShape] = []
    for new in (draw_shape(random) for _ in range(random.integers(1, most + 1))):
        merges = any(new.colour == old.colour and overlap(new, old) for old in shapes)
        if not merges and min(measure_visible([*shapes, new])) >= MIN_VISIBLE:
            shapes.append(new)
    numbers = np.asarray(paint_shapes(shapes, size))
    corners = [compute_extent(numbers == index) for index in range(1, len(shapes) + 1)]
    labels = tuple(shape.shape for shape in shapes)
    return render(shapes, size, random), Boxes(np.array(corners) / SUPERSAMPLING, labels)


def draw_captioned(size: int, seed: int, number: int) -> tuple[np.ndarray, str]:
    """Draw two shapes that do not overlap: pixels (3, size, size), and a caption with the direction from the smaller to
    the larger."""
    random = np.random.default_rng([seed, number, 1])
    large, small = next(
        (large, small)
        for large, small in ((draw_shape(random, 0.17, 0.25), draw_shape(random, 0.09, 0.12)) for _ in count())
        if str(large) != str(small) and is_unambiguous(large, small)
    )
    return render([large, small], size, random), f"{large} {describe_relation(large, small)} {small}"


SCENE_KINDS: dict[str, Callable[[int, int, int], tuple[np.ndarray, Boxes | str]]] = {
    "scenes": draw_boxed,
    "scene-captions": draw_captioned,
}


def draw_shape(random: Random, least: float = RADII[0], most: float = RADII[1]) -> SceneShape:
    """Draw a random shape that is inside the image."""
    radius = random.uniform(least, most)
    x, y = random.uniform(radius, 1 - radius, 2)
    shape, colour = (str(random.choice(list(names))) for names in (SHAPES, COLOURS))
    return SceneShape(shape, colour, x, y, radius, random.uniform(-0.3, 0.3))


def overlap(a: SceneShape, b: SceneShape) -> bool:
    """Whether the circles around two shapes overlap."""
    return bool(np.hypot(a.x - b.x, a.y - b.y) < a.radius + b.radius)


def is_unambiguous(a: SceneShape, b: SceneShape) -> bool:
    """Whether two shapes do not overlap, and one direction describes their relation."""
    across, down = abs(a.x - b.x), abs(a.y - b.y)
    return not overlap(a, b) and max(across, down) > DIRECTION_RATIO * min(across, down)


def describe_relation(a: SceneShape, b: SceneShape) -> str:
    """Where `a` is relative to `b`."""
    if abs(a.x - b.x) > abs(a.y - b.y):
        return "left of" if a.x < b.x else "right of"
    return "above" if a.y < b.y else "below"


def paint_shapes(shapes: Iterable[SceneShape], size: int) -> Image.Image:
    """The number of the visible shape at each supersampled point, from 1; 0 is background."""
    canvas = Image.new("P", (SUPERSAMPLING * size, SUPERSAMPLING * size))
    pen = ImageDraw.Draw(canvas)
    for number, shape in enumerate(shapes, 1):
        pen.polygon(shape.outline(SUPERSAMPLING * size), fill=number)
    return canvas


def measure_visible(shapes: Sequence[SceneShape], size: int = 24) -> list[float]:
    """The visible share of each shape, estimated at one size, so that images of all sizes have the same shapes."""
    points = paint_shapes(shapes, size).histogram()
    return [points[number] / shape.area(SUPERSAMPLING * size) for number, shape in enumerate(shapes, 1)]


def compute_extent(mask: np.ndarray) -> list[int]:
    """x0 y0 x1 y1 of the points that are True."""
    columns, rows = (np.flatnonzero(mask.any(axis)) for axis in (0, 1))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


def render(shapes: Sequence[SceneShape], size: int, random: Random) -> np.ndarray:
    """Render the image of a scene, (3, size, size) uint8."""
    canvas = paint_shapes(shapes, size)
    colours = [np.add(COLOURS[shape.colour], random.integers(-14, 15, 3)).clip(0, 255) for shape in shapes]
    canvas.putpalette(np.concatenate([np.zeros(3, int), *colours]).astype(np.uint8).tobytes())
    foreground = np.asarray(canvas.convert("RGB").reduce(SUPERSAMPLING), float)  # black where no shape is
    alpha = np.asarray(canvas.point(OCCUPIED, "L").reduce(SUPERSAMPLING), float)[..., None] / 255
    picture = foreground + (1 - alpha) * draw_background(random, size) + random.normal(0, 3, (size, size, 1))
    return picture.round().clip(0, 255).astype(np.uint8).transpose(2, 0, 1)  # (H, W, C) -> (C, H, W)


def draw_plain(random: Random, size: int) -> np.ndarray:
    return np.zeros((size, size))


def draw_gradient(random: Random, size: int) -> np.ndarray:
    return draw_stripes(random, size, waves=0.25)


def draw_stripes(random: Random, size: int, waves: float = 0.0) -> np.ndarray:
    """Sine waves of a random direction; 0 draws their number."""
    angle, phase = random.uniform(0, 2 * np.pi, 2)
    y, x = np.mgrid[:size, :size] / size
    waves = waves or random.uniform(2, 6)
    return np.sin(2 * np.pi * waves * (x * np.cos(angle) + y * np.sin(angle)) + phase)


def draw_clouds(random: Random, size: int) -> np.ndarray:
    """Random numbers on a coarse grid, interpolated."""
    coarse = Image.fromarray(random.uniform(-1, 1, (6, 6)).astype(np.float32))
    return np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC))


BACKGROUNDS: tuple[Callable[[Random, int], np.ndarray], ...] = (draw_plain, draw_gradient, draw_stripes, draw_clouds)


def draw_background(random: Random, size: int) -> np.ndarray:
    """The background, (size, size, 3): a dull colour, plain or with a pattern."""
    pattern = BACKGROUNDS[random.integers(len(BACKGROUNDS))](random, size)[..., None]
    grey, contrast = random.uniform(70, 190), random.uniform(10, 30)
    tint = random.uniform(-15, 15, 3)
    return grey + tint + contrast * pattern
