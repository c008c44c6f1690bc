"""Pictures to files: the format by the name's ending, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.errors import UserError, nearest
from headwise.inspect.svg import Drawing
from headwise.utils.files import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(drawing: Drawing, path: str | Path) -> Path:
    """Write a drawing as .svg or .png."""
    path = Path(path)
    check_ending(path, ".svg", ".png")
    if path.suffix.lower() == ".svg":
        return write(path, drawing.svg())
    from headwise.inspect import png

    return write(path, png.render(drawing))


@contextmanager
def figure(path: Path, width: float = 8, height: float = 4.5) -> Iterator[Figure]:
    """A matplotlib figure to draw on, in inches; afterwards it is at `path`, as .svg or .png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_ending(path, ".svg", ".png")
    drawn = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawn)
    yield drawn
    picture = BytesIO()
    drawn.savefig(picture, format=path.suffix[1:].lower(), dpi=150)
    write(path, picture.getvalue())


def check_ending(path: Path, *known: str) -> None:
    """Refuse a file name whose ending says nothing about the format, before any work is done."""
    if path.suffix.lower() not in known:
        ending = f"ends in '{path.suffix}'" if path.suffix else "has no ending"
        raise UserError(f"{path}: the file {ending}; {nearest(path.suffix, known)}")
