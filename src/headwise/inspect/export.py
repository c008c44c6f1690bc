"""From recorded maps to a file, in one call: what `headwise inspect --out` does."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headwise.errors import UserError, nearest
from headwise.inference.maps import Maps
from headwise.inspect.files import check_ending, save
from headwise.inspect.page import page
from headwise.inspect.pictures import alignment, approximation, head_grid
from headwise.utils.files import write

VIEWS = ("alignment", "heads", "exact")


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

    The alignment is the mean over the heads of the last layer unless `layer` and `head` say otherwise. `exact` draws it
    beside what softmax attention would do, for mixers that approximate that.
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
    if view == "exact":
        if kind not in maps.exact or (layer is not None and np.isnan(maps.exact[kind][layer]).all()):
            raise UserError(f"{note}: it approximates no softmax attention, so there is no other map; leave out --view")
        return save(approximation(maps, kind, title, note, layer, head), path)
    return save(alignment(maps.matrix(kind, layer, head), columns, rows, title, note), path)


def _which(maps: Maps, kind: str, layer: int | None, head: int | None) -> str:
    """Which map is shown, counted from one; refuses layers and heads that do not exist."""
    return f"{_one('layer', layer, len(maps.weights[kind]))}, {_one('head', head, maps.heads(kind, layer))}"


def _one(what: str, number: int | None, count: int) -> str:
    if number is None:
        return f"mean of {count} {what}s" if count > 1 else f"its only {what}"
    if not -count <= number < count:
        raise UserError(f"there is no {what} {number + 1}; this attention has {count} {what}s")
    return f"{what} {number % count + 1} of {count}"
