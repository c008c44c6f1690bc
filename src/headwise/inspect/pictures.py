"""Attention maps as pictures: one alignment (after Bahdanau et al. 2015, figure 3), or every head at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.inference.maps import Maps
from headwise.inspect import colour
from headwise.inspect.colour import TINY, Scale
from headwise.inspect.svg import Drawing, Grid, Path, Rect, Shape, Text, text_width, visible

Matrix = NDArray[np.floating]
MARGIN = 28.0


def alignment(
    weights: Matrix,
    source: Sequence[str],
    target: Sequence[str],
    title: str,
    note: str = "",
    scale: Scale | None = None,
) -> Drawing:
    """One map (target, source) with its tokens: source along the top, target down the side.

    The strongest weight of each row is framed; weights are written into the cells while they fit. The colour scale ends
    at the largest weight if none is given, and goes both ways where weights are negative.
    """
    rows, columns = weights.shape
    cell = min(44.0, max(9.0, 760.0 / max(rows, columns)))
    size = min(16.0, cell * 0.62)
    across, down = [label(token) for token in source], [label(token) for token in target]
    flat = all(text_width(token, 0.72 * size) <= cell for token in across)
    left = MARGIN + max(text_width(token, size) for token in down) + 14
    head = 76.0 if note else 54.0
    top = head + (size + 16 if flat else 12 + 0.85 * max(text_width(token, size) for token in across) + size)
    scale = scale or Scale.over(weights)

    pixels = scale.paint(weights)
    shapes: list[Shape] = [
        Text(MARGIN, 36, title, 19, bold=True),
        Text(MARGIN, 58, note, 12.5, colour.SOFT),
        Grid(left, top, cell, pixels),
        *lattice(left, top, cell, rows, columns),
        *side_labels(down, left - 10, top, cell, size),
        *top_labels(across, left, top - 10, cell, size, flat),
        *(numbers(weights, pixels, left, top, cell) if cell >= 26 else ()),
        *peaks(weights, left, top, cell),
        *scale_bar(left + columns * cell + 26, top, min(rows * cell, 260), *scale),
    ]
    slant = 0 if flat else 0.6 * text_width(across[-1], size)
    wide = max(left + columns * cell + max(100, slant), MARGIN + text_width(title, 19) + MARGIN)
    wide = max(wide, MARGIN + text_width(note, 12.5))
    return Drawing(wide, top + max(rows * cell, 90) + MARGIN, tuple(shapes), title)


def beside(left: Maps, right: Maps, titles: tuple[str, str], layers: tuple[int, int] = (-1, -1)) -> Drawing:
    """The cross-attention of two models for one source on one colour scale: a layer of each, the mean of its heads."""
    pairs = list(zip((left, right), titles, layers, strict=True))
    for maps, title, layer in pairs:
        depth = len(maps.weights.get("cross", ()))
        if not -depth <= layer < depth:
            missing = f"no layer {layer + 1}; it has {depth}" if depth else "no cross-attention to draw"
            raise UserError(f"{title}: there is {missing}")
    several = [maps.matrix("cross", layer) for maps, _, layer in pairs]
    scale = Scale.over(*several)
    first, second = (
        alignment(weights, maps.source_tokens, maps.target_tokens, title, scale=scale)
        for weights, (maps, title, _) in zip(several, pairs, strict=True)
    )
    return side_by_side(first, second, " beside ".join(titles))


def approximation(
    maps: Maps, kind: str, title: str, note: str = "", layer: int | None = -1, head: int | None = None
) -> Drawing:
    """The map that a mixer implies and that of softmax attention at the same queries and keys, on one colour scale."""
    implied, exact = (maps.matrix(kind, layer, head, exact) for exact in (False, True))
    apart = float(np.linalg.norm(implied - exact) / np.linalg.norm(exact))
    scale, tokens = Scale.over(implied, exact), (maps.columns(kind), maps.rows(kind))
    first = alignment(implied, *tokens, title, f"implied: {note}", scale)
    second = alignment(exact, *tokens, "", f"exact softmax attention; relative distance of the two {apart:.2f}", scale)
    return side_by_side(first, second, title)


def side_by_side(left: Drawing, right: Drawing, title: str) -> Drawing:
    """Two drawings as one."""
    moved = tuple(shifted(shape, left.width) for shape in right.shapes)
    return Drawing(left.width + right.width, max(left.height, right.height), left.shapes + moved, title)


def shifted(shape: Shape, right: float) -> Shape:
    """The same shape further to the right."""
    if isinstance(shape, Path):
        return replace(shape, points=tuple((x + right, y) for x, y in shape.points))
    return replace(shape, x=shape.x + right)


def head_grid(weights: Matrix, rows: Sequence[str], columns: Sequence[str], title: str, note: str = "") -> Drawing:
    """Every head of every layer as small multiples: layers downwards, heads across, one colour scale. A head that is
    not there (NaN) leaves its place empty."""
    layers, heads, down, across = weights.shape
    scale = Scale(1.0) if np.nanmin(weights) >= -TINY and np.nanmax(weights) <= 1 + TINY else Scale.over(weights)
    cell = max(2.0, min(14.0, 170.0 / max(down, across)))
    wide, high, gap = cell * across, cell * down, 16.0
    legible = cell >= 8
    names, tops = [label(token, 6) for token in rows], [label(token, 6) for token in columns]
    size = cell * 0.78
    left = MARGIN + 62 + (max(text_width(token, size) for token in names) if legible else 0)
    room = max(text_width(token, size) for token in tops) if legible else 0
    top = 100 + room
    shapes: list[Shape] = [Text(MARGIN, 36, title, 19, bold=True), Text(MARGIN, 58, note, 12.5, colour.SOFT)]
    for head in range(heads):
        x = left + head * (wide + gap)
        shapes.append(Text(x + wide / 2, top - room - 12, f"head {head + 1}", 12, colour.SOFT, "middle"))
        if legible:
            shapes += top_labels(tops, x, top - 5, cell, size, flat=False, turn=-90)
    for layer in range(layers):
        y = top + layer * (high + gap)
        shapes.append(Text(MARGIN, y + high / 2 + 4, f"layer {layer + 1}", 12, colour.SOFT))
        if legible:
            shapes += side_labels(names, left - 5, y, cell, size)
        for head in range(heads):
            x = left + head * (wide + gap)
            if np.isnan(weights[layer, head]).all():
                continue
            shapes.append(Grid(x, y, cell, scale.paint(weights[layer, head])))
            shapes.append(Rect(x, y, wide, high, stroke=colour.FAINT))
    end = left + heads * (wide + gap)
    below = top + layers * (high + gap)
    shapes += scale_bar(end + 8, top, min(below - gap - top, 200), *scale)
    whole = max(end + 84, MARGIN + text_width(title, 19) + MARGIN, MARGIN + text_width(note, 12.5))
    return Drawing(whole, below + MARGIN - gap / 2, tuple(shapes), title)


def label(token: str, longest: int = 14) -> str:
    """A token as a label: spaces made visible, long ones cut.

    >>> label(" a"), label("Donaudampfschifffahrt")
    ('␣a', 'Donaudampfsch…')
    """
    seen = visible(token).replace(" ", "␣") or "∅"
    return seen if len(seen) <= longest else seen[: longest - 1] + "…"


def brief(weight: float) -> str:
    """A weight in three characters, as in a table of loadings; one more for a sign.

    >>> brief(0.4683), brief(0.004), brief(0.9996), brief(-0.25)
    ('.47', '', '1', '-.25')
    """
    text = f"{weight:.2f}"
    return {"0.00": "", "-0.00": "", "1.00": "1", "-1.00": "-1"}.get(text, text.replace("0.", ".", 1))


def lattice(x: float, y: float, cell: float, rows: int, columns: int) -> list[Shape]:
    """White lines between the cells and a fine frame around them."""
    wide, high = columns * cell, rows * cell
    line = 1.5 if cell >= 20 else 0.6
    across = [Path(((x, y + i * cell), (x + wide, y + i * cell)), colour.PAPER, line) for i in range(1, rows)]
    down = [Path(((x + j * cell, y), (x + j * cell, y + high)), colour.PAPER, line) for j in range(1, columns)]
    return [*across, *down, Rect(x, y, wide, high, stroke=colour.FAINT)]


def side_labels(tokens: Sequence[str], x: float, y: float, cell: float, size: float) -> list[Shape]:
    """Row labels that end at `x`."""
    return [Text(x, y + (i + 0.5) * cell + 0.35 * size, t, size, anchor="end") for i, t in enumerate(tokens)]


def top_labels(
    tokens: Sequence[str], x: float, y: float, cell: float, size: float, flat: bool, turn: float = -50
) -> list[Shape]:
    """Column labels above `y`: upright while they fit into their column, else turned."""
    if flat:
        fitting = [size * min(1, cell / text_width(token, size)) for token in tokens]
        return [Text(x + (j + 0.5) * cell, y, token, fitting[j], anchor="middle") for j, token in enumerate(tokens)]
    return [Text(x + (j + 0.5) * cell + 0.3 * size, y, t, size, turn=turn) for j, t in enumerate(tokens)]


def numbers(weights: Matrix, pixels: colour.Pixels, x: float, y: float, cell: float) -> list[Shape]:
    """The weights written into their cells."""
    size = cell * 0.3
    return [
        Text(
            x + (j + 0.5) * cell,
            y + (i + 0.5) * cell + 0.36 * size,
            brief(float(weights[i, j])),
            size,
            colour.ink_on(pixels[i, j]),
            "middle",
        )
        for i, j in np.ndindex(weights.shape)
        if brief(float(weights[i, j]))
    ]


def peaks(weights: Matrix, x: float, y: float, cell: float) -> list[Shape]:
    """A frame around the strongest weight of every row that has one."""
    best = np.abs(weights).argmax(axis=1)
    inset = 1.5 if cell >= 20 else 0.5
    return [
        Rect(
            x + j * cell + inset,
            y + i * cell + inset,
            cell - 2 * inset,
            cell - 2 * inset,
            stroke=colour.ACCENT,
            line=1.6 if cell >= 20 else 0.8,
        )
        for i, j in enumerate(best)
        if weights[i, j] != 0
    ]


def scale_bar(x: float, y: float, height: float, high: float, signed: bool = False) -> list[Shape]:
    """The colour scale with its ends and middle, the largest weight on top."""
    steps = 40
    cell = height / steps
    low, middle = (-high, 0.0) if signed else (0.0, high / 2)
    pixels = Scale(high, signed).paint(np.linspace(high, low, steps)[:, None])
    ticks = [(0.0, f"{high:g}"), (0.5, f"{middle:g}"), (1.0, f"{low:g}")]
    return [
        *(Rect(x, y + i * cell, 12, cell + 0.3, colour.name(pixel[0])) for i, pixel in enumerate(pixels)),
        Rect(x, y, 12, height, stroke=colour.FAINT),
        *(Text(x + 18, y + at * height + 4, text, 11, colour.SOFT) for at, text in ticks),
    ]
