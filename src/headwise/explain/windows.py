"""Shifted windows (Liu et al. 2021, "Swin Transformer", section 3.2): who sees whom, and what rolling is for.

The numbers are those of `blocks.grid.WindowPartition`, which the models use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.explain.story import Matrix, Step, Story
from headwise.inspect import colour

Ints = NDArray[np.int64]
LARGEST = 16  # side of a grid that still reads well in numbers
# Light enough for dark digits, in an order in which neighbours differ.
TINTS = ("#cfe0f3", "#f7d9c4", "#d3ead9", "#e7d8f2", "#f6e7b8", "#d5dae3", "#f3cfdc", "#c9ecec", "#e3e8b5")


class Numbered(Matrix):
    """Whole numbers, each with a colour of its own."""

    def pixels(self) -> colour.Pixels:
        tints = np.array([[int(tint[i : i + 2], 16) for i in (1, 3, 5)] for tint in TINTS], dtype=np.uint8)
        return tints[(self.array.astype(int) - 1) % len(TINTS)]


@dataclass(frozen=True)
class Shifted:
    """A square grid in windows, and how far every other layer shifts them."""

    grid: int = 8
    window: int = 4
    shift: int = 2

    def __post_init__(self) -> None:
        if not 2 <= self.grid <= LARGEST:
            raise UserError(f"--grid {self.grid}: must be between 2 and {LARGEST}, to be shown in numbers")
        if not 2 <= self.window < self.grid or self.grid % self.window:
            raise UserError(f"--window {self.window}: must be at least 2 and divide a grid of {self.grid}")
        if not 1 <= self.shift < self.window:
            raise UserError(f"--shift {self.shift}: must be between 1 and {self.window - 1}, less than a window")


@dataclass(frozen=True, eq=False)
class Cut:
    """All that is told of a grid: what is at each of its places, (h, w), and who sees whom in the last window."""

    windows: Ints  # the number of its window
    pieces: Ints  # the same for windows that are shifted, and cut by the border
    rolled: Ints  # the pieces after the grid was rolled
    seen: Ints  # (T, T) of the last window, 1 where a token may see another
    masked: int  # windows in which somebody may not


def cut(given: Shifted) -> Cut:
    """A grid in windows, in shifted windows, and rolled."""
    from headwise.blocks.grid import WindowPartition

    shape = (given.grid, given.grid)
    plain, tiling = WindowPartition.of(shape, given.window, 0), WindowPartition.of(shape, given.window, given.shift)
    places = tiling.places()
    regions = tiling.regions(places)
    assert regions is not None
    windows = np.empty(given.grid**2, dtype=np.int64)
    windows[plain.places().numpy()] = np.arange(1, len(places) + 1)[:, None]
    apart = np.empty(given.grid**2, dtype=np.int64)
    apart[places.numpy()] = 4 * np.arange(len(places))[:, None] + regions.numpy()
    _, first, number = np.unique(apart, return_index=True, return_inverse=True)
    pieces = (np.argsort(np.argsort(first))[number] + 1).reshape(shape)  # numbered as one reads
    last = regions[-1].numpy()
    return Cut(
        windows.reshape(shape),
        pieces,
        np.roll(pieces, (-given.shift, -given.shift), (0, 1)),
        (last[:, None] == last[None]).astype(np.int64),
        int((regions.amin(1) != regions.amax(1)).sum()),
    )


def to_json(given: Shifted) -> dict[str, Any]:
    """Everything `story` tells, as plain data."""
    found = cut(given)
    names = ("windows", "pieces", "rolled", "seen")
    return {name: getattr(found, name).tolist() for name in names} | {"masked": found.masked}


def story(given: Shifted) -> Story:
    """Windows, shifted windows, the rolled grid, and the mask."""
    found = cut(given)
    return Story(
        "Shifted windows with numbers",
        "Attention between all places of an image costs the square of their number. Inside windows "
        f"of {given.window}~×~{given.window} each place costs as much, however large the image is. In every other "
        "layer the windows are shifted, so that what is in one reaches its neighbours.",
        (_windows(given, found), _pieces(given, found), _rolled(given, found), _mask(found)),
    )


def _windows(given: Shifted, found: Cut) -> Step:
    places, inside = given.grid**2, given.window**2
    return Step(
        "A token sees its window",
        "Each number is a place of the grid, and says which window it is in.",
        ((Numbered("windows of the first layer", found.windows),),),
        (
            f"between all places {places}² = {places**2:,} scores",
            f"inside windows {places // inside} × {inside}² = {places * inside:,}",
        ),
    )


def _pieces(given: Shifted, found: Cut) -> Step:
    return Step(
        f"The next layer's windows lie {given.shift} further",
        "Tokens on both sides of an old border meet. The border of the image cuts windows, so there are more of them, "
        "and not all have one size.",
        ((Numbered("windows of the second layer", found.pieces),),),
        (f"{found.windows.max()} windows, now {found.pieces.max()}",),
    )


def _rolled(given: Shifted, found: Cut) -> Step:
    return Step(
        f"The grid is rolled by {given.shift} up and left",
        "What was cut off at one border fills up the windows at the other: as many windows as before, all of one size, "
        "which go through attention as one batch. Afterwards the grid is rolled back.",
        ((Numbered("the second layer's, rolled", found.rolled), "in", Numbered("windows", found.windows)),),
    )


def _mask(found: Cut) -> Step:
    return Step(
        "What only the rolling brought together stays apart",
        "Tokens of different numbers in one window are no neighbours in the image: a mask hides them from one another, "
        "as it hides documents that are packed into one row. Dark: who sees whom of the "
        f"{len(found.seen)} tokens of the last window, row by row.",
        ((Matrix("last window", found.seen, look="weights", dense=True),),),
        (
            f"{found.masked} of {found.windows.max()} windows have somebody to hide",
            "with a grid of 56 × 56 and windows of 7, the first of Swin-T: 15 of 64",
        ),
    )
