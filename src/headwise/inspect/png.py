"""PNG renderer of a `Drawing`: matplotlib's Agg canvas, without the global state of pyplot."""

from __future__ import annotations

import io
import warnings
from functools import singledispatch
from typing import Any

from headwise.inspect.svg import Drawing, Grid, Path, Picture, Rect, Shape, Text, replace_controls

ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def render(drawing: Drawing, scale: float = 2.0) -> bytes:
    """Render a drawing as PNG bytes, at `scale` device pixels per unit."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # at 72 dots per inch a point is a pixel, so font sizes and line widths need no conversion
    figure = Figure(figsize=(drawing.width / 72, drawing.height / 72), dpi=72 * scale)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
    axes.axis("off")
    for order, shape in enumerate(drawing.shapes):
        paint(shape, axes, order)
    file = io.BytesIO()
    with warnings.catch_warnings():
        # a character that the font lacks is drawn as a box; that is no reason to fail
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(file, format="png", metadata={"Title": replace_controls(drawing.title), "Software": "Headwise"})
    return file.getvalue()


@singledispatch
def paint(shape: Shape, axes: Any, order: int) -> None:
    """Add one shape; later shapes lie on top."""
    raise TypeError(f"no such shape: {shape!r}")


@paint.register
def _rect(shape: Rect, axes: Any, order: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = f"round,pad=0,rounding_size={shape.radius}" if shape.radius else "square,pad=0"
    box = FancyBboxPatch((shape.x, shape.y), shape.width, shape.height, boxstyle=style)
    box.set(facecolor=shape.fill, edgecolor=shape.stroke, linewidth=shape.line, zorder=order)
    axes.add_artist(box)


@paint.register
def _text(shape: Text, axes: Any, order: int) -> None:
    axes.text(
        shape.x,
        shape.y,
        replace_controls(shape.text),
        size=shape.size,
        color=shape.colour,
        ha=ANCHORS[shape.anchor],
        va="baseline",
        weight="bold" if shape.bold else "normal",
        rotation=-shape.turn,
        rotation_mode="anchor",
        zorder=order,
        parse_math=False,  # a token may hold a dollar sign
        family="DejaVu Sans",
    )


@paint.register
def _path(shape: Path, axes: Any, order: int) -> None:
    from matplotlib.patches import Polygon

    closed = shape.fill != "none"
    line = Polygon(shape.points, closed=closed, fill=closed, joinstyle="round")
    line.set(facecolor=shape.fill, edgecolor=shape.stroke, linewidth=shape.line, zorder=order)
    axes.add_artist(line)


@paint.register
def _grid(shape: Grid, axes: Any, order: int) -> None:
    rows, columns = shape.pixels.shape[:2]
    right, bottom = shape.x + columns * shape.cell, shape.y + rows * shape.cell
    extent = (shape.x, right, bottom, shape.y)
    axes.imshow(shape.pixels, extent=extent, interpolation="nearest", aspect="auto", zorder=order)


@paint.register
def _picture(shape: Picture, axes: Any, order: int) -> None:
    extent = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
    axes.imshow(shape.pixels, extent=extent, interpolation="nearest", aspect="auto", zorder=order)
