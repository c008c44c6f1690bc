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
from headwise.vision.workers import shown

Random = np.random.Generator
Points = list[tuple[float, float]]

VERSION = 1  # of how scenes are drawn; another number draws anew what is kept
FINER = 4  # lines and columns that are drawn for each of the image: edges are smooth, boxes exact to a quarter pixel
LEAST = 0.4  # of a shape stays visible, whatever covers it
SIZES = (0.09, 0.24)  # radii, as shares of the image's side
APART = 1.6  # times as far in one direction as in the other: "above" is never "left of"

COLOURS = {
    "red": (214, 40, 40),
    "green": (46, 160, 67),
    "blue": (38, 84, 214),
    "yellow": (245, 209, 39),
    "purple": (139, 58, 176),
    "orange": (240, 125, 26),
}


TAKEN = [0, *[255] * 255]  # of an owner's number: whether there is one


def ring(corners: int, *radii: float, turn: float = 0.0) -> Points:
    """Corners at equal angles, the first on top; their distances from the middle take turns."""
    angles = [2 * np.pi * (corner + turn) / corners for corner in range(corners)]
    return [(r * np.sin(a), -r * np.cos(a)) for a, r in zip(angles, radii * (corners // len(radii)), strict=True)]


# outlines in a circle of radius 1
SHAPES: dict[str, Points] = {
    "circle": ring(48, 1.0),
    "square": ring(4, 1.0, turn=0.5),
    "triangle": ring(3, 1.0),
    "star": ring(10, 1.0, 0.45),
    "cross": [(x * sx, y * sy) for sx, sy, turned in ((1, -1, 0), (1, 1, 1), (-1, 1, 0), (-1, -1, 1))
              for x, y in ((0.33, 0.94), (0.33, 0.33), (0.94, 0.33))[:: -1 if turned else 1]],
}  # fmt: skip


@dataclass(frozen=True)
class Thing:
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


def scenes(name: str, count: int, size: int, seed: int = 1, start: int = 0) -> Images:
    """The scenes with `count` numbers from `start`."""
    numbers = range(start, start + count)
    made = (MAKERS[name](size, seed, number) for number in numbers)
    pixels, targets = zip(*shown(made, count, f"drawing {name}"), strict=True)
    return Images(np.stack(pixels), targets, [f"{name} {seed}.{number}" for number in numbers])


def boxed(size: int, seed: int, number: int, most: int = 5) -> tuple[np.ndarray, Boxes]:
    """One to `most` shapes, later ones over earlier ones: pixels (3, size, size), and the box of what is visible of
    each. No shape is covered by more than 1 - `LEAST`, and none of one colour meet."""
    random = np.random.default_rng([seed, number, 0])
    things: list[Thing] = []
    for new in (thing(random) for _ in range(random.integers(1, most + 1))):
        blends = any(new.colour == old.colour and meet(new, old) for old in things)
        if not blends and min(visible([*things, new])) >= LEAST:
            things.append(new)
    owners = np.asarray(painted(things, size))
    corners = [extent(owners == place) for place in range(1, len(things) + 1)]
    labels = tuple(each.shape for each in things)
    return drawn(things, size, random), Boxes(np.array(corners) / FINER, labels)


def captioned(size: int, seed: int, number: int) -> tuple[np.ndarray, str]:
    """Two shapes that do not meet: pixels (3, size, size), and where the larger one is, seen from the smaller."""
    random = np.random.default_rng([seed, number, 1])
    large, small = next(
        (large, small)
        for large, small in ((thing(random, 0.17, 0.25), thing(random, 0.09, 0.12)) for _ in count())
        if str(large) != str(small) and clear(large, small)
    )
    return drawn([large, small], size, random), f"{large} {relation(large, small)} {small}"


MAKERS: dict[str, Callable[[int, int, int], tuple[np.ndarray, Any]]] = {"scenes": boxed, "scene-captions": captioned}


def thing(random: Random, least: float = SIZES[0], most: float = SIZES[1]) -> Thing:
    """Any shape that is inside the image."""
    radius = random.uniform(least, most)
    x, y = random.uniform(radius, 1 - radius, 2)
    shape, colour = (str(random.choice(list(names))) for names in (SHAPES, COLOURS))
    return Thing(shape, colour, x, y, radius, random.uniform(-0.3, 0.3))


def meet(a: Thing, b: Thing) -> bool:
    """Whether the circles around them do."""
    return bool(np.hypot(a.x - b.x, a.y - b.y) < a.radius + b.radius)


def clear(a: Thing, b: Thing) -> bool:
    """Whether they do not meet, and one word says where one is, seen from the other."""
    across, down = abs(a.x - b.x), abs(a.y - b.y)
    return not meet(a, b) and max(across, down) > APART * min(across, down)


def relation(a: Thing, b: Thing) -> str:
    """Where `a` is, seen from `b`."""
    if abs(a.x - b.x) > abs(a.y - b.y):
        return "left of" if a.x < b.x else "right of"
    return "above" if a.y < b.y else "below"


def painted(things: Iterable[Thing], size: int) -> Image.Image:
    """Whose each point is, `FINER` points to a pixel: 0 nobody's, else the number of a thing from 1."""
    canvas = Image.new("P", (FINER * size, FINER * size))
    pen = ImageDraw.Draw(canvas)
    for number, each in enumerate(things, 1):
        pen.polygon(each.outline(FINER * size), fill=number)
    return canvas


def visible(things: Sequence[Thing], size: int = 24) -> list[float]:
    """Which share of each thing is not covered by later ones: about, and the same for images of all sizes."""
    seen = painted(things, size).histogram()
    return [seen[number] / each.area(FINER * size) for number, each in enumerate(things, 1)]


def extent(mask: np.ndarray) -> list[int]:
    """x0 y0 x1 y1 of the points that are True."""
    columns, rows = (np.flatnonzero(mask.any(axis)) for axis in (0, 1))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


def drawn(things: Sequence[Thing], size: int, random: Random) -> np.ndarray:
    """The image, (3, size, size) uint8."""
    canvas = painted(things, size)
    colours = [np.add(COLOURS[each.colour], random.integers(-14, 15, 3)).clip(0, 255) for each in things]
    canvas.putpalette(np.concatenate([np.zeros(3, int), *colours]).astype(np.uint8).tobytes())
    front = np.asarray(canvas.convert("RGB").reduce(FINER), float)  # black where nobody is
    covered = np.asarray(canvas.point(TAKEN, "L").reduce(FINER), float)[..., None] / 255
    picture = front + (1 - covered) * ground(random, size) + random.normal(0, 3, (size, size, 1))
    return picture.round().clip(0, 255).astype(np.uint8).transpose(2, 0, 1)  # (H, W, C) -> (C, H, W)


def plain(random: Random, size: int) -> np.ndarray:
    return np.zeros((size, size))


def slope(random: Random, size: int) -> np.ndarray:
    return stripes(random, size, waves=0.25)


def stripes(random: Random, size: int, waves: float = 0.0) -> np.ndarray:
    """Waves of one direction, as many as are asked for or else some."""
    angle, phase = random.uniform(0, 2 * np.pi, 2)
    y, x = np.mgrid[:size, :size] / size
    waves = waves or random.uniform(2, 6)
    return np.sin(2 * np.pi * waves * (x * np.cos(angle) + y * np.sin(angle)) + phase)


def clouds(random: Random, size: int) -> np.ndarray:
    """Random numbers on a coarse grid, and smoothly between them."""
    coarse = Image.fromarray(random.uniform(-1, 1, (6, 6)).astype(np.float32))
    return np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC))


GROUNDS: tuple[Callable[[Random, int], np.ndarray], ...] = (plain, slope, stripes, clouds)


def ground(random: Random, size: int) -> np.ndarray:
    """What is behind the shapes, (size, size, 3): a dull colour, plain or with a pattern."""
    pattern = GROUNDS[random.integers(len(GROUNDS))](random, size)[..., None]
    grey, contrast = random.uniform(70, 190), random.uniform(10, 30)
    tint = random.uniform(-15, 15, 3)
    return grey + tint + contrast * pattern
