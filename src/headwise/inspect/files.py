"""Pictures to files: the format by the name's ending, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from headwise.errors import UserError, nearest
from headwise.inspect.svg import Drawing


def save(drawing: Drawing, path: str | Path) -> Path:
    """Write a drawing as .svg or .png."""
    path = Path(path)
    check_ending(path, ".svg", ".png")
    if path.suffix.lower() == ".svg":
        return write(path, drawing.svg().encode())
    from headwise.inspect import png

    return write(path, png.render(drawing))


def check_ending(path: Path, *known: str) -> None:
    """Refuse a file name whose ending says nothing about the format, before any work is done."""
    if path.suffix.lower() not in known:
        ending = f"ends in '{path.suffix}'" if path.suffix else "has no ending"
        raise UserError(f"{path}: the file {ending}; {nearest(path.suffix, known)}")


def write(path: Path, content: bytes) -> Path:
    """Write beside the target and rename, so that nobody ever sees half a file."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_bytes(content)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{path}: cannot be written ({reason}); choose another place") from error
    return path
