"""Attention maps as pictures: one alignment (after Bahdanau et al. 2015, figure 3), or every head at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.inference.maps import Maps
from headwise.inspect import colour
from headwise.inspect.colour import EPSILON, Scale
from headwise.inspect.svg import Drawing, Grid, Path, Rect, Shape, Text, replace_controls, text_width

Matrix = NDArray[np.floating]
MARGIN = 28.0


def draw_alignment(
    weights: Matrix,
    source: Sequence[str],
    target: Sequence[str],
    title: str,
    note: str = "",
    scale: Scale | None = None,
) -> Drawing:
    """Draw one attention map (target, source) with its tokens: source in columns, target in rows.

    The largest weight of each row is framed; weights are written into the cells if they fit. The default colour scale
    ends at the largest weight, and is diverging if weights are negative.
    """
    rows, columns = weights.shape
    cell = min(44.0, max(9.0, 760.0 / max(rows, columns)))
    size = min(16.0, cell * 0.62)
    across, down = [format_token(token) for token in source], [format_token(token) for token in target]
    flat = all(text_width(token, 0.72 * size) <= cell for token in across)
    left = MARGIN + max(text_width(token, size) for token in down) + 14
    head = 76.0 if note else 54.0
    top = head + (size + 16 if flat else 12 + 0.85 * max(text_width(token, size) for token in across) + size)
    scale = scale or Scale.fit(weights)

    pixels = scale.paint(weights)
    shapes: list[Shape] = [
        Text(MARGIN, 36, title, 19, bold=True),
        Text(MARGIN, 58, note, 12.5, colour.SOFT),
        Grid(left, top, cell, pixels),
        *draw_cell_borders(left, top, cell, rows, columns),
        *draw_row_labels(down, left - 10, top, cell, size),
        *draw_column_labels(across, left, top - 10, cell, size, flat),
        *(draw_weights(weights, pixels, left, top, cell) if cell >= 26 else ()),
        *frame_row_maxima(weights, left, top, cell),
        *draw_colour_bar(left + columns * cell + 26, top, min(rows * cell, 260), *scale),
    ]
    slant = 0 if flat else 0.6 * text_width(across[-1], size)
    wide = max(left + columns * cell + max(100, slant), MARGIN + text_width(title, 19) + MARGIN)
    wide = max(wide, MARGIN + text_width(note, 12.5))
    return Drawing(wide, top + max(rows * cell, 90) + MARGIN, tuple(shapes), title)


def compare_alignments(left: Maps, right: Maps, titles: tuple[str, str], layers: tuple[int, int] = (-1, -1)) -> Drawing:
    """Draw the cross-attention of two models for one source on one colour scale: one layer of each."""
    pairs = list(zip((left, right), titles, layers, strict=True))
    for maps, title, layer in pairs:
        depth = len(maps.weights.get("cross", ()))
        if not -depth <= layer < depth:
            missing = f"no layer {layer + 1}; it has {depth}" if depth else "no cross-attention to draw"
            raise UserError(f"{title}: there is {missing}")
    matrices = [maps.matrix("cross", layer) for maps, _, layer in pairs]
    scale = Scale.fit(*matrices)
    first, second = (
        draw_alignment(weights, maps.source_tokens, maps.target_tokens, title, scale=scale)
        for weights, (maps, title, _) in zip(matrices, pairs, strict=True)
    )
    return join_drawings(first, second, " beside ".join(titles))


def draw_approximation(
    maps: Maps, kind: str, title: str, note: str = "", layer: int | None = -1, head: int | None = None
) -> Drawing:
    """Draw a mixer's approximate map beside exact softmax attention, on one colour scale."""
    implied, exact = (maps.matrix(kind, layer, head, exact) for exact in (False, True))
    error = float(np.linalg.norm(implied - exact) / np.linalg.norm(exact))
    scale, tokens = Scale.fit(implied, exact), (maps.columns(kind), maps.rows(kind))
    first = draw_alignment(implied, *tokens, title, f"implied: {note}", scale)
    second = draw_alignment(
        exact, *tokens, "", f"exact softmax attention; relative distance of the two {error:.2f}", scale
    )
    return join_drawings(first, second, title)


def join_drawings(left: Drawing, right: Drawing, title: str) -> Drawing:
    """Join two drawings, side by side."""
    moved = tuple(shift_shape(shape, left.width) for shape in right.shapes)
    return Drawing(left.width + right.width, max(left.height, right.height), left.shapes + moved, title)


def shift_shape(shape: Shape, right: float) -> Shape:
    """Shift a shape to the right."""
    if isinstance(shape, Path):
        return replace(shape, points=tuple((x + right, y) for x, y in shape.points))
    return replace(shape, x=shape.x + right)


def draw_head_grid(weights: Matrix, rows: Sequence[str], columns: Sequence[str], title: str, note: str = "") -> Drawing:
    """Draw all heads as small multiples: layers in rows, heads in columns, one colour scale. Heads that do not exist
    (NaN) are left empty."""
    layers, heads, down, across = weights.shape
    scale = Scale(1.0) if np.nanmin(weights) >= -EPSILON and np.nanmax(weights) <= 1 + EPSILON else Scale.fit(weights)
    cell = max(2.0, min(14.0, 170.0 / max(down, across)))
    wide, high, gap = cell * across, cell * down, 16.0
    legible = cell >= 8
    names, tops = [format_token(token, 6) for token in rows], [format_token(token, 6) for token in columns]
    size = cell * 0.78
    left = MARGIN + 62 + (max(text_width(token, size) for token in names) if legible else 0)
    room = max(text_width(token, size) for token in tops) if legible else 0
    top = 100 + room
    shapes: list[Shape] = [Text(MARGIN, 36, title, 19, bold=True), Text(MARGIN, 58, note, 12.5, colour.SOFT)]
    for head in range(heads):
        x = left + head * (wide + gap)
        shapes.append(Text(x + wide / 2, top - room - 12, f"head {head + 1}", 12, colour.SOFT, "middle"))
        if legible:
            shapes += draw_column_labels(tops, x, top - 5, cell, size, flat=False, turn=-90)
    for layer in range(layers):
        y = top + layer * (high + gap)
        shapes.append(Text(MARGIN, y + high / 2 + 4, f"layer {layer + 1}", 12, colour.SOFT))
        if legible:
            shapes += draw_row_labels(names, left - 5, y, cell, size)
        for head in range(heads):
            x = left + head * (wide + gap)
            if np.isnan(weights[layer, head]).all():
                continue
            shapes.append(Grid(x, y, cell, scale.paint(weights[layer, head])))
            shapes.append(Rect(x, y, wide, high, stroke=colour.FAINT))
    end = left + heads * (wide + gap)
    below = top + layers * (high + gap)
    shapes += draw_colour_bar(end + 8, top, min(below - gap - top, 200), *scale)
    width = max(end + 84, MARGIN + text_width(title, 19) + MARGIN, MARGIN + text_width(note, 12.5))
    return Drawing(width, below + MARGIN - gap / 2, tuple(shapes), title)


def format_token(token: str, longest: int = 14) -> str:
    """Format a token as a label: spaces visible, long tokens cut.

    >>> format_token(" a"), format_token("Donaudampfschifffahrt")
    ('␣a', 'Donaudampfsch…')
    """
    return format_label(token.replace(" ", "␣"), longest)


def format_label(label: str, longest: int = 24) -> str:
    """Format the name of a class: long ones cut.

    >>> format_label("science and technology"), format_label("science and technology", 10)
    ('science and technology', 'science a…')
    """
    label = replace_controls(label) or "∅"
    return label if len(label) <= longest else label[: longest - 1] + "…"


def format_weight(weight: float) -> str:
    """Format a weight in three characters, one more for a sign.

    >>> format_weight(0.4683), format_weight(0.004), format_weight(0.9996), format_weight(-0.25)
    ('.47', '', '1', '-.25')
    """
    text = f"{weight:.2f}"
    return {"0.00": "", "-0.00": "", "1.00": "1", "-1.00": "-1"}.get(text, text.replace("0.", ".", 1))


def draw_cell_borders(x: float, y: float, cell: float, rows: int, columns: int) -> list[Shape]:
    """Draw white lines between the cells and a thin frame around them."""
    wide, high = columns * cell, rows * cell
    line = 1.5 if cell >= 20 else 0.6
    across = [Path(((x, y + i * cell), (x + wide, y + i * cell)), colour.PAPER, line) for i in range(1, rows)]
    down = [Path(((x + j * cell, y), (x + j * cell, y + high)), colour.PAPER, line) for j in range(1, columns)]
    return [*across, *down, Rect(x, y, wide, high, stroke=colour.FAINT)]


def draw_row_labels(tokens: Sequence[str], x: float, y: float, cell: float, size: float) -> list[Shape]:
    """Draw row labels that end at `x`."""
    return [Text(x, y + (i + 0.5) * cell + 0.35 * size, t, size, anchor="end") for i, t in enumerate(tokens)]


def draw_column_labels(
    tokens: Sequence[str], x: float, y: float, cell: float, size: float, flat: bool, turn: float = -50
) -> list[Shape]:
    """Draw column labels above `y`: horizontal (`flat`) in a font size that fits the column, or rotated by `turn`."""
    if flat:
        sizes = [size * min(1, cell / text_width(token, size)) for token in tokens]
        return [Text(x + (j + 0.5) * cell, y, token, sizes[j], anchor="middle") for j, token in enumerate(tokens)]
    return [Text(x + (j + 0.5) * cell + 0.3 * size, y, t, size, turn=turn) for j, t in enumerate(tokens)]


def draw_weights(weights: Matrix, pixels: colour.Pixels, x: float, y: float, cell: float) -> list[Shape]:
    """Write the weights into their cells."""
    size = cell * 0.3
    return [
        Text(
            x + (j + 0.5) * cell,
            y + (i + 0.5) * cell + 0.36 * size,
            format_weight(float(weights[i, j])),
            size,
            colour.pick_text_colour(pixels[i, j]),
            "middle",
        )
        for i, j in np.ndindex(weights.shape)
        if format_weight(float(weights[i, j]))
    ]


def frame_row_maxima(weights: Matrix, x: float, y: float, cell: float) -> list[Shape]:
    """Frame the largest weight of each row that has any."""
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


def draw_colour_bar(x: float, y: float, height: float, high: float, signed: bool = False) -> list[Shape]:
    """Draw the colour scale with ticks at its ends and middle, the largest weight on top."""
    steps = 40
    cell = height / steps
    low, middle = (-high, 0.0) if signed else (0.0, high / 2)
    pixels = Scale(high, signed).paint(np.linspace(high, low, steps)[:, None])
    ticks = [(0.0, f"{high:g}"), (0.5, f"{middle:g}"), (1.0, f"{low:g}")]
    return [
        *(Rect(x, y + i * cell, 12, cell + 0.3, colour.to_hex(pixel[0])) for i, pixel in enumerate(pixels)),
        Rect(x, y, 12, height, stroke=colour.FAINT),
        *(Text(x + 18, y + at * height + 4, text, 11, colour.SOFT) for at, text in ticks),
    ]
