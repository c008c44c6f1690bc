"""Pictures as a few shapes: a `Drawing` is a value, written as SVG here and as PNG by `headwise.inspect.png`.

Sizes are in pixels, y runs down, and a text's y is its base line. Everything that is text is escaped here,
in one place, so that a token can never become markup.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from functools import singledispatch
from html import escape
from io import BytesIO

from headwise.inspect import colour
from headwise.inspect.colour import Pixels

FONT = "'Segoe UI', 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    stroke: str = "none"
    line: float = 1.0
    radius: float = 0.0


@dataclass(frozen=True)
class Text:
    x: float
    y: float
    text: str
    size: float = 12.0
    colour: str = colour.INK
    anchor: str = "start"  # start, middle, end
    bold: bool = False
    turn: float = 0.0  # degrees, clockwise, about (x, y)


@dataclass(frozen=True)
class Path:
    """A line through points; closed and filled when it has a `fill`."""

    points: tuple[tuple[float, float], ...]
    stroke: str = colour.INK
    line: float = 1.0
    fill: str = "none"


@dataclass(frozen=True, eq=False)
class Grid:
    """Coloured cells: `pixels` is (rows, columns, 3), each cell `cell` pixels square."""

    x: float
    y: float
    cell: float
    pixels: Pixels


@dataclass(frozen=True, eq=False)
class Picture:
    """An image of (rows, columns, 3) pixels, which are drawn as they are: to be shown larger, never blurred."""

    x: float
    y: float
    width: float
    height: float
    pixels: Pixels


Shape = Rect | Text | Path | Grid | Picture


@dataclass(frozen=True)
class Drawing:
    """Shapes in painting order on white paper; `title` is read aloud by screen readers."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    title: str

    def svg(self) -> str:
        """The picture as one self-contained SVG document."""
        width, height = _n(self.width), _n(self.height)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="{FONT}" role="img">'
        )
        paper = f'<rect width="100%" height="100%" fill="{colour.PAPER}"/>'
        body = "\n".join(element(shape) for shape in self.shapes)
        return f"{head}\n<title>{clean(self.title)}</title>\n{paper}\n{body}\n</svg>\n"


def visible(text: str) -> str:
    """Text one can see: control characters as their symbols, what no file may hold as U+FFFD.

    >>> visible("a" + chr(9) + "b" + chr(0xD800))
    'a␉b�'
    """
    symbols = re.sub(r"[\x00-\x1f]", lambda match: chr(0x2400 + ord(match[0])), text)
    return re.sub(r"[\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", symbols)


def clean(text: str) -> str:
    """Text made safe inside XML."""
    return escape(visible(text), quote=True)


def text_width(text: str, size: float) -> float:
    """A generous guess of how wide a text will be: full-width characters count one em, others 0.6."""
    return size * sum(1.0 if ord(character) > 0x2E7F else 0.6 for character in text)


@singledispatch
def element(shape: Shape) -> str:
    """One shape as SVG."""
    raise TypeError(f"no such shape: {shape!r}")


@element.register
def _rect(shape: Rect) -> str:
    place = f'x="{_n(shape.x)}" y="{_n(shape.y)}" width="{_n(shape.width)}" height="{_n(shape.height)}"'
    stroke = f' stroke="{shape.stroke}" stroke-width="{_n(shape.line)}"' if shape.stroke != "none" else ""
    radius = f' rx="{_n(shape.radius)}"' if shape.radius else ""
    return f'<rect {place} fill="{shape.fill}"{stroke}{radius}/>'


@element.register
def _text(shape: Text) -> str:
    x, y = _n(shape.x), _n(shape.y)
    turn = f' transform="rotate({_n(shape.turn)} {x} {y})"' if shape.turn else ""
    bold = ' font-weight="bold"' if shape.bold else ""
    look = f'font-size="{_n(shape.size)}" fill="{shape.colour}" text-anchor="{shape.anchor}"{bold}{turn}'
    return f'<text x="{x}" y="{y}" {look} xml:space="preserve">{clean(shape.text)}</text>'


@element.register
def _path(shape: Path) -> str:
    points = " ".join(f"{_n(x)},{_n(y)}" for x, y in shape.points)
    tag = "polyline" if shape.fill == "none" else "polygon"
    return (
        f'<{tag} points="{points}" fill="{shape.fill}" stroke="{shape.stroke}" '
        f'stroke-width="{_n(shape.line)}" stroke-linejoin="round"/>'
    )


@element.register
def _grid(shape: Grid) -> str:
    rects = []
    for i, row in enumerate(shape.pixels):
        names = [colour.name(pixel) for pixel in row]
        start = 0
        for j in range(1, len(names) + 1):
            if j == len(names) or names[j] != names[start]:  # equal neighbours share one rectangle
                x, y = _n(shape.x + start * shape.cell), _n(shape.y + i * shape.cell)
                width, height = _n((j - start) * shape.cell), _n(shape.cell)
                rects.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{names[start]}"/>')
                start = j
    return f'<g shape-rendering="crispEdges">{"".join(rects)}</g>'


@element.register
def _picture(shape: Picture) -> str:
    from PIL import Image

    file = BytesIO()
    Image.fromarray(shape.pixels).save(file, "PNG", optimize=True)
    place = f'x="{_n(shape.x)}" y="{_n(shape.y)}" width="{_n(shape.width)}" height="{_n(shape.height)}"'
    look = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
    return f'<image {place} {look} href="data:image/png;base64,{b64encode(file.getvalue()).decode()}"/>'


def _n(value: float) -> str:
    """A number without needless digits."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
