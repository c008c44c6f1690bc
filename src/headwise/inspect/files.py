"""Pictures to files: the format by the name's ending, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from headwise.errors import UserError, nearest
from headwise.files import write
from headwise.inspect.svg import Drawing


def save(drawing: Drawing, path: str | Path) -> Path:
    """Write a drawing as .svg or .png."""
    path = Path(path)
    check_ending(path, ".svg", ".png")
    if path.suffix.lower() == ".svg":
        return write(path, drawing.svg())
    from headwise.inspect import png

    return write(path, png.render(drawing))


def check_ending(path: Path, *known: str) -> None:
    """Refuse a file name whose ending says nothing about the format, before any work is done."""
    if path.suffix.lower() not in known:
        ending = f"ends in '{path.suffix}'" if path.suffix else "has no ending"
        raise UserError(f"{path}: the file {ending}; {nearest(path.suffix, known)}")
