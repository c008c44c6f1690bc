"""Export recorded attention maps to a file, as `headwise inspect --out` does."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headwise.errors import UserError, nearest
from headwise.inference.maps import Maps
from headwise.inspect.files import check_ending, save
from headwise.inspect.page import render_page
from headwise.inspect.pictures import draw_alignment, draw_approximation, draw_head_grid
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
    """Export all maps as an interactive .html page, or one view of one kind of attention as .svg or .png.

    The alignment is the mean over the heads of the last layer unless `layer` and `head` are given. `exact` compares the
    map of a mixer that approximates softmax attention with the exact one.
    """
    path = Path(path)
    check_ending(path, ".svg", ".png", ".html")
    if path.suffix.lower() == ".html":
        return write(path, render_page(maps, title))
    if kind not in maps.weights:
        raise UserError(f"no {kind} attention was recorded; there is {' and '.join(sorted(maps.weights))}")
    if view not in VIEWS:
        raise UserError(f"no view is called '{view}'; {nearest(view, VIEWS)}")
    rows, columns = maps.rows(kind), maps.columns(kind)
    if view == "heads":
        return save(draw_head_grid(maps.weights[kind], rows, columns, title, f"{kind} attention"), path)
    note = f"{kind} attention, {_describe_map(maps, kind, layer, head)}"
    if view == "exact":
        if kind not in maps.exact or (layer is not None and np.isnan(maps.exact[kind][layer]).all()):
            raise UserError(f"{note}: does not approximate softmax attention, with no exact map; leave out --view")
        return save(draw_approximation(maps, kind, title, note, layer, head), path)
    return save(draw_alignment(maps.matrix(kind, layer, head), columns, rows, title, note), path)


def _describe_map(maps: Maps, kind: str, layer: int | None, head: int | None) -> str:
    """Describe the selection of layer and head, counted from one; those that do not exist are refused."""
    layers = _describe_index("layer", layer, len(maps.weights[kind]))
    return f"{layers}, {_describe_index('head', head, maps.heads(kind, layer))}"


def _describe_index(noun: str, number: int | None, count: int) -> str:
    if number is None:
        return f"mean of {count} {noun}s" if count > 1 else f"its only {noun}"
    if not -count <= number < count:
        raise UserError(f"there is no {noun} {number + 1}; this attention has {count} {noun}s")
    return f"{noun} {number % count + 1} of {count}"
