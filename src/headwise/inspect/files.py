"""Pictures as files: the suffix decides the format; files are written atomically."""

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
        return write(path, drawing.to_svg())
    from headwise.inspect import png

    return write(path, png.render(drawing))


@contextmanager
def open_figure(path: Path, width: float = 8, height: float = 4.5) -> Iterator[Figure]:
    """Open a matplotlib figure, sized in inches, that is saved at `path` as .svg or .png when the block ends."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_ending(path, ".svg", ".png")
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    yield figure
    file = BytesIO()
    figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)
    write(path, file.getvalue())


def check_ending(path: Path, *known: str) -> None:
    """Refuse a file name whose suffix is no known format, before any work is done."""
    if path.suffix.lower() not in known:
        ending = f"ends in '{path.suffix}'" if path.suffix else "has no ending"
        raise UserError(f"{path}: the file {ending}; {nearest(path.suffix, known)}")
