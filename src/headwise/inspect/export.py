"""From recorded maps to a file, in one call: what `headwise inspect --out` does."""

from __future__ import annotations

from pathlib import Path

from headwise.errors import UserError, nearest
from headwise.files import write
from headwise.inspect.files import check_ending, save
from headwise.inspect.maps import Maps
from headwise.inspect.page import page
from headwise.inspect.pictures import alignment, head_grid

VIEWS = ("alignment", "heads")


def export(
    maps: Maps,
    path: str | Path,
    title: str,
    view: str = "alignment",
    kind: str = "cross",
    layer: int | None = -1,
    head: int | None = None,
) -> Path:
    """Write .html (everything, to explore), or one view of one kind of attention as .svg or .png.

    The alignment is the mean over the heads of the last layer unless `layer` and `head` say otherwise.
    """
    path = Path(path)
    check_ending(path, ".svg", ".png", ".html")
    if path.suffix.lower() == ".html":
        return write(path, page(maps, title))
    if kind not in maps.weights:
        raise UserError(f"no {kind} attention was recorded; there is {' and '.join(sorted(maps.weights))}")
    if view not in VIEWS:
        raise UserError(f"no view is called '{view}'; {nearest(view, VIEWS)}")
    rows, columns = maps.rows(kind), maps.columns(kind)
    if view == "heads":
        return save(head_grid(maps.weights[kind], rows, columns, title, f"{kind} attention"), path)
    note = f"{kind} attention, {_which(maps, kind, layer, head)}"
    return save(alignment(maps.matrix(kind, layer, head), columns, rows, title, note), path)


def _which(maps: Maps, kind: str, layer: int | None, head: int | None) -> str:
    """Which map is shown, counted from one; refuses layers and heads that do not exist."""
    parts = []
    for what, number, count in zip(("layer", "head"), (layer, head), maps.weights[kind].shape, strict=False):
        if number is None:
            parts.append(f"mean of {count} {what}s" if count > 1 else f"its only {what}")
        elif -count <= number < count:
            parts.append(f"{what} {number % count + 1} of {count}")
        else:
            raise UserError(f"there is no {what} {number + 1}; this attention has {count} {what}s")
    return ", ".join(parts)
