"""A picture of secondary structure under its sequence: helices as boxes, strands as arrows, coil as a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from headwise.inspect import colour
from headwise.inspect.svg import Drawing, Path, Rect, Shape, Text
from headwise.proteins.secondary import HELIX, STRAND, reduce_states

CELL, LINE_RESIDUES = 13.0, 50  # pixels of a residue; residues of a line
HELIX_COLOUR, STRAND_COLOUR = colour.ACCENT, "#3578b9"
MARGIN, LABEL, TITLE = 14.0, 88.0, 44.0
TRACK, SEQUENCE, GAP = 34.0, 30.0, 16.0  # pixels down: of a track, of the letters above, between lines


@dataclass(frozen=True)
class Track:
    """States of all residues under a label, such as "predicted"."""

    label: str
    states: str  # eight states or three


def draw_secondary(name: str, sequence: str, tracks: Sequence[Track]) -> Drawing:
    """Secondary structure under its sequence, in lines of 50 residues: tracks of a cartoon of three states and the
    letters of the states as they are."""
    lines = -(-len(sequence) // LINE_RESIDUES)
    height = SEQUENCE + TRACK * len(tracks)
    width = 2 * MARGIN + LABEL + CELL * min(len(sequence), LINE_RESIDUES)
    shapes: list[Shape] = [
        Text(MARGIN, 22, name, 14, bold=True),
        Text(MARGIN, 38, f"{len(sequence)} residues; box: helix, arrow: strand, line: coil", 10, colour.SOFT),
    ]
    for number in range(lines):
        top = TITLE + number * (height + GAP)
        part = slice(number * LINE_RESIDUES, (number + 1) * LINE_RESIDUES)
        shapes += _draw_letters(sequence[part], part.start, top)
        for row, track in enumerate(tracks):
            middle = top + SEQUENCE + row * TRACK
            shapes.append(Text(MARGIN, middle + 12, track.label, 11, colour.SOFT))
            shapes += _draw_states(track.states[part], middle)
    total = TITLE + lines * (height + GAP) + MARGIN
    return Drawing(max(width, 360), total, tuple(shapes), f"Secondary structure of {name}")


def _draw_letters(letters: str, start: int, top: float) -> Iterator[Shape]:
    left = MARGIN + LABEL
    for place, letter in enumerate(letters):
        x = left + (place + 0.5) * CELL
        if (start + place + 1) % 10 == 0:
            yield Text(x, top + 9, str(start + place + 1), 8, colour.SOFT, "middle")
        yield Text(x, top + 23, letter, 11, anchor="middle")


def _draw_states(states: str, top: float) -> Iterator[Shape]:
    place, left, middle = 0, MARGIN + LABEL, top + 8
    for state, group in groupby(reduce_states(states)):
        count = len(list(group))
        x, end = left + place * CELL, left + (place + count) * CELL
        if state == HELIX:
            yield Rect(x, middle - 6, end - x, 12, HELIX_COLOUR, radius=5)
        elif state == STRAND:
            yield _draw_arrow(x, end, middle)
        else:
            yield Path(((x, middle), (end, middle)), colour.SOFT, 1.5)
        place += count
    for number, state in enumerate(states):
        yield Text(left + (number + 0.5) * CELL, top + 25, state, 9, colour.SOFT, "middle")


def _draw_arrow(x: float, end: float, middle: float) -> Path:
    neck = max(x, end - CELL)
    points = ((x, middle - 4), (neck, middle - 4), (neck, middle - 8), (end, middle))
    mirrored = tuple((across, 2 * middle - down) for across, down in reversed(points[:-1]))
    return Path(points + mirrored, STRAND_COLOUR, 1.0, STRAND_COLOUR)
