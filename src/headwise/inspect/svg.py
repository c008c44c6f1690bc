"""Drawings as values: a `Drawing` is a tuple of shapes, rendered as SVG here and as PNG by `headwise.inspect.png`.

Sizes are in pixels, y points down, and a text's y is its baseline. All text is escaped here, so that a token cannot
become markup.
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
    """An image of (rows, columns, 3) pixels, scaled without interpolation."""

    x: float
    y: float
    width: float
    height: float
    pixels: Pixels


Shape = Rect | Text | Path | Grid | Picture


@dataclass(frozen=True)
class Drawing:
    """Shapes in painting order on a white background; `title` is for screen readers."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    title: str

    def to_svg(self) -> str:
        """Render a self-contained SVG document."""
        width, height = _fmt(self.width), _fmt(self.height)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="{FONT}" role="img">'
        )
        paper = f'<rect width="100%" height="100%" fill="{colour.PAPER}"/>'
        body = "\n".join(to_element(shape) for shape in self.shapes)
        return f"{head}\n<title>{escape_xml(self.title)}</title>\n{paper}\n{body}\n</svg>\n"


def replace_controls(text: str) -> str:
    """Replace control characters by their symbols, and characters that XML forbids by U+FFFD.

    >>> replace_controls("a" + chr(9) + "b" + chr(0xD800))
    'a␉b�'
    """
    symbols = re.sub(r"[\x00-\x1f]", lambda match: chr(0x2400 + ord(match[0])), text)
    return re.sub(r"[\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", symbols)


def escape_xml(text: str) -> str:
    """Escape text for XML."""
    return escape(replace_controls(text), quote=True)


def text_width(text: str, size: float) -> float:
    """Upper estimate of the width of a text: one em for full-width characters, 0.6 for others."""
    return size * sum(1.0 if ord(character) > 0x2E7F else 0.6 for character in text)


@singledispatch
def to_element(shape: Shape) -> str:
    """Render one shape as an SVG element."""
    raise TypeError(f"no such shape: {shape!r}")


@to_element.register
def _rect(shape: Rect) -> str:
    place = f'x="{_fmt(shape.x)}" y="{_fmt(shape.y)}" width="{_fmt(shape.width)}" height="{_fmt(shape.height)}"'
    stroke = f' stroke="{shape.stroke}" stroke-width="{_fmt(shape.line)}"' if shape.stroke != "none" else ""
    radius = f' rx="{_fmt(shape.radius)}"' if shape.radius else ""
    return f'<rect {place} fill="{shape.fill}"{stroke}{radius}/>'


@to_element.register
def _text(shape: Text) -> str:
    x, y = _fmt(shape.x), _fmt(shape.y)
    turn = f' transform="rotate({_fmt(shape.turn)} {x} {y})"' if shape.turn else ""
    bold = ' font-weight="bold"' if shape.bold else ""
    style = f'font-size="{_fmt(shape.size)}" fill="{shape.colour}" text-anchor="{shape.anchor}"{bold}{turn}'
    return f'<text x="{x}" y="{y}" {style} xml:space="preserve">{escape_xml(shape.text)}</text>'


@to_element.register
def _path(shape: Path) -> str:
    points = " ".join(f"{_fmt(x)},{_fmt(y)}" for x, y in shape.points)
    tag = "polyline" if shape.fill == "none" else "polygon"
    return (
        f'<{tag} points="{points}" fill="{shape.fill}" stroke="{shape.stroke}" '
        f'stroke-width="{_fmt(shape.line)}" stroke-linejoin="round"/>'
    )


@to_element.register
def _grid(shape: Grid) -> str:
    rects = []
    for i, row in enumerate(shape.pixels):
        names = [colour.to_hex(pixel) for pixel in row]
        start = 0
        for j in range(1, len(names) + 1):
            if j == len(names) or names[j] != names[start]:  # equal neighbours share one rectangle
                x, y = _fmt(shape.x + start * shape.cell), _fmt(shape.y + i * shape.cell)
                width, height = _fmt((j - start) * shape.cell), _fmt(shape.cell)
                rects.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{names[start]}"/>')
                start = j
    return f'<g shape-rendering="crispEdges">{"".join(rects)}</g>'


@to_element.register
def _picture(shape: Picture) -> str:
    from PIL import Image

    file = BytesIO()
    Image.fromarray(shape.pixels).save(file, "PNG", optimize=True)
    place = f'x="{_fmt(shape.x)}" y="{_fmt(shape.y)}" width="{_fmt(shape.width)}" height="{_fmt(shape.height)}"'
    style = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
    return f'<image {place} {style} href="data:image/png;base64,{b64encode(file.getvalue()).decode()}"/>'


def _fmt(value: float) -> str:
    """Format a number without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
