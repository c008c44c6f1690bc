"""Pictures of a chain: the confidence of each residue, and traces of Cα seen from two sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.inspect import colour
from headwise.inspect.pictures import MARGIN
from headwise.inspect.svg import Drawing, Path, Rect, Shape, Text, text_width

Values = NDArray[np.floating]
TRUE_COLOUR = "#9aa1ad"
PLOT_HEIGHT, PLOT_WIDTH = 210.0, 700.0
PANEL, PANEL_GAP = 250.0, 18.0
LINE = 4.5
POSITIONS = ("#6a4fc9", "#3b6fb6", "#2a9d8f", "#a7a03a", "#e07b3c")  # along a chain


def draw_confidence(sequence: str, confidence: Values, true: Values | None, title: str, name: str) -> Drawing:
    """Draw the confidence along the chain over its four bands and, where it is known, the true lDDT of each residue."""
    left, top, cell = MARGIN + 34, 86.0, PLOT_WIDTH / len(sequence)
    lines = [(name, colour.INK, confidence), *(() if true is None else (("lDDT-Cα", colour.ACCENT, true),))]
    shapes: list[Shape] = [Text(MARGIN, 36, title, 19, bold=True), *_draw_bands(left, top)]
    for number, (label, stroke, values) in enumerate(lines):
        shapes += [Path(points, stroke, 2.0) for points in _split_line(values, left, top, cell)]
        mean = float(np.nanmean(values))
        shapes.append(Text(MARGIN + number * 240, 60, f"{label}, mean {mean:.1f}", 12.5, stroke))
    size = min(11.0, cell * 1.1)
    bottom = top + PLOT_HEIGHT
    for place, letter in enumerate(sequence):
        x = left + (place + 0.5) * cell
        if size >= 6:
            shapes.append(Text(x, bottom + 14, letter, size, anchor="middle"))
        if (place + 1) % 10 == 0:
            shapes.append(Text(x, bottom + 28, str(place + 1), 9, colour.SOFT, "middle"))
    return Drawing(left + PLOT_WIDTH + MARGIN, bottom + 36 + MARGIN / 2, tuple(shapes), title)


def _draw_bands(left: float, top: float) -> Iterator[Shape]:
    upper = 100
    for least, name in colour.CONFIDENCE_BANDS:
        y, high = top + (100 - upper) / 100 * PLOT_HEIGHT, (upper - least) / 100 * PLOT_HEIGHT
        yield Rect(left, y, PLOT_WIDTH, high, blend(name, 0.18))
        yield Rect(left - 5, y, 5, high, name)
        yield Text(left - 9, y + 4, str(upper), 9, colour.SOFT, "end")
        upper = least
    yield Text(left - 9, top + PLOT_HEIGHT + 3, "0", 9, colour.SOFT, "end")


def _split_line(values: Values, left: float, top: float, cell: float) -> list[tuple[tuple[float, float], ...]]:
    """The points of a line, in parts between residues that are not known."""
    parts: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(values):
        if np.isnan(value):
            parts.append([])
        else:
            parts[-1].append((left + (place + 0.5) * cell, top + (100 - float(value)) / 100 * PLOT_HEIGHT))
    return [tuple(part) for part in parts if len(part) > 1]


def draw_traces(
    points: Values, colours: Sequence[str], true: Values | None, title: str, notes: Sequence[str] = ()
) -> Drawing:
    """Draw the trace of Cα (L, 3) from two sides, at a right angle, over the true one in grey, which may have NaN."""
    axes = find_axes(points)
    shapes: list[Shape] = [
        Text(MARGIN, 36, title, 19, bold=True),
        *(Text(MARGIN, 58 + 18 * number, note, 12.5, colour.SOFT) for number, note in enumerate(notes)),
    ]
    top, everything = 58.0 + 18 * len(notes), points if true is None else np.concatenate([points, true])
    radius = float(np.nanmax(np.linalg.norm(everything - points.mean(0), axis=-1))) + 1.0
    turned = np.stack([-axes[:, 2], axes[:, 1], axes[:, 0]], axis=-1)  # by a quarter about the vertical axis
    for number, view in enumerate((axes, turned)):
        x = MARGIN + number * (PANEL + PANEL_GAP)
        shapes.append(Rect(x, top, PANEL, PANEL, stroke=colour.FAINT, radius=8))
        shapes += draw_trace(points, colours, true, (view, points.mean(0), radius), (x, top))
    width = max(2 * PANEL + PANEL_GAP, text_width(title, 19), *(text_width(note, 12.5) for note in notes), 0)
    return Drawing(width + 2 * MARGIN, top + PANEL + MARGIN, tuple(shapes), title)


def draw_trace(
    points: Values,
    colours: Sequence[str],
    true: Values | None,
    view: tuple[Values, Values, float],
    corner: tuple[float, float],
    side: float = PANEL,
) -> list[Shape]:
    """Draw one panel: segments from the farthest to the nearest. `view` has the axes (3, 3), centre and radius."""
    axes, centre, radius = view
    segments: list[tuple[float, Path]] = []
    for chain, paints, line in ((true, [TRUE_COLOUR] * len(points), LINE * 0.6), (points, colours, LINE)):
        if chain is None:
            continue
        seen = (chain - centre) @ axes / radius  # (L, 3): right, up, towards the eye
        for number in range(len(seen) - 1):
            if np.isnan(seen[number : number + 2]).any():
                continue
            ends = [(corner[0] + (1 + x) / 2 * side, corner[1] + (1 - y) / 2 * side) for x, y, _ in seen[number:][:2]]
            depth = float(seen[number : number + 2, 2].mean())
            paint = blend(paints[number], 0.62 + 0.38 * (depth + 1) / 2)
            segments.append((depth, Path(tuple(ends), paint, line * side / PANEL)))
    return [path for _, path in sorted(segments, key=lambda each: each[0])]


def draw_layers(layers: Values, true: Values | None, title: str, columns: int = 4) -> Drawing:
    """Draw the traces after each layer of the structure module (N, L, 3), coloured by the place in the chain."""
    last, side = layers[-1], 176.0
    axes, centre = find_axes(last), last.mean(0)
    everything = last if true is None else np.concatenate([last, true])
    radius = float(np.nanmax(np.linalg.norm(everything - centre, axis=-1))) + 1.0
    colours = [colour.to_hex(pixel) for pixel in colour.paint(np.linspace(0, 1, layers.shape[1]), scale=POSITIONS)]
    note = "residues from the first (violet) to the last (orange)" + (
        "; grey: the true structure" if true is not None else ""
    )
    shapes: list[Shape] = [Text(MARGIN, 36, title, 19, bold=True), Text(MARGIN, 58, note, 12.5, colour.SOFT)]
    for number, points in enumerate(layers):
        row, column = divmod(number, columns)
        x, y = MARGIN + column * (side + PANEL_GAP), 92.0 + row * (side + 34)
        shapes += [Text(x, y - 6, f"layer {number + 1}", 12), Rect(x, y, side, side, stroke=colour.FAINT, radius=8)]
        shown = true if number == len(layers) - 1 else None
        shapes += draw_trace(points, colours, shown, (axes, centre, radius), (x, y), side)
    across, rows = min(columns, len(layers)), -(-len(layers) // columns)
    width = max(across * (side + PANEL_GAP) - PANEL_GAP, text_width(title, 19), text_width(note, 12.5))
    return Drawing(width + 2 * MARGIN, 92.0 + rows * (side + 34) - 34 + MARGIN, tuple(shapes), title)


def find_axes(points: Values) -> Values:
    """The principal axes of points (L, 3) as columns, the longest first; right-handed, so that nothing is mirrored."""
    axes = np.linalg.svd(points - points.mean(0), full_matrices=False)[2].T
    if np.linalg.det(axes) < 0:
        axes[:, 2] *= -1
    return axes


def blend(name: str, share: float) -> str:
    """A colour mixed with the paper, of which `share` is the colour.

    >>> blend("#000000", 0.0), blend("#000000", 1.0)
    ('#ffffff', '#000000')
    """
    channels = np.array([int(name[at : at + 2], 16) for at in (1, 3, 5)])
    return colour.to_hex((255 + share * (channels - 255)).round().astype(np.uint8))
