"""Shifted windows (Liu et al. 2021, "Swin Transformer", section 3.2): windows, cyclic shift and attention mask.

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
MAX_SIZE = 16  # side of the grid; more would not be readable
# Light enough for dark digits, in an order in which neighbours differ.
TINTS = ("#cfe0f3", "#f7d9c4", "#d3ead9", "#e7d8f2", "#f6e7b8", "#d5dae3", "#f3cfdc", "#c9ecec", "#e3e8b5")


class NumberMatrix(Matrix):
    """A matrix of whole numbers, each with its own colour."""

    def pixels(self) -> colour.Pixels:
        tints = np.array([[int(tint[i : i + 2], 16) for i in (1, 3, 5)] for tint in TINTS], dtype=np.uint8)
        return tints[(self.array.astype(int) - 1) % len(TINTS)]


@dataclass(frozen=True)
class ShiftedWindows:
    """The side of a square grid, the side of its windows, and the shift of every other layer."""

    grid: int = 8
    window: int = 4
    shift: int = 2

    def __post_init__(self) -> None:
        if not 2 <= self.grid <= MAX_SIZE:
            raise UserError(f"--grid {self.grid}: must be between 2 and {MAX_SIZE}, to be shown in numbers")
        if not 2 <= self.window < self.grid or self.grid % self.window:
            raise UserError(f"--window {self.window}: must be at least 2 and divide a grid of {self.grid}")
        if not 1 <= self.shift < self.window:
            raise UserError(f"--shift {self.shift}: must be between 1 and {self.window - 1}, less than a window")


@dataclass(frozen=True, eq=False)
class WindowMaps:
    """The window number of each cell of the grid, (h, w), and the attention mask of the last window."""

    windows: Ints  # without a shift
    shifted: Ints  # with a shift; the border of the grid splits windows
    rolled: Ints  # the shifted windows after the cyclic shift
    allowed: Ints  # (T, T) of the last window, 1 where a token may attend to another
    masked: int  # number of windows that need a mask


def compute_windows(settings: ShiftedWindows) -> WindowMaps:
    """Partition a grid into windows, shifted windows, and rolled windows."""
    from headwise.blocks.grid import WindowPartition

    shape = (settings.grid, settings.grid)
    plain, tiling = (
        WindowPartition.of(shape, settings.window, 0),
        WindowPartition.of(shape, settings.window, settings.shift),
    )
    places = tiling.compute_order()
    regions = tiling.compute_regions(places)
    assert regions is not None
    windows = np.empty(settings.grid**2, dtype=np.int64)
    windows[plain.compute_order().numpy()] = np.arange(1, len(places) + 1)[:, None]
    apart = np.empty(settings.grid**2, dtype=np.int64)
    apart[places.numpy()] = 4 * np.arange(len(places))[:, None] + regions.numpy()
    _, first, number = np.unique(apart, return_index=True, return_inverse=True)
    pieces = (np.argsort(np.argsort(first))[number] + 1).reshape(shape)  # numbered in reading order
    last = regions[-1].numpy()
    return WindowMaps(
        windows.reshape(shape),
        pieces,
        np.roll(pieces, (-settings.shift, -settings.shift), (0, 1)),
        (last[:, None] == last[None]).astype(np.int64),
        int((regions.amin(1) != regions.amax(1)).sum()),
    )


def to_json(settings: ShiftedWindows) -> dict[str, Any]:
    """All values of the story, as plain data."""
    maps = compute_windows(settings)
    names = ("windows", "shifted", "rolled", "allowed")
    return {name: getattr(maps, name).tolist() for name in names} | {"masked": maps.masked}


def build_story(settings: ShiftedWindows) -> Story:
    """Windows, shifted windows, the rolled grid, and the mask."""
    maps = compute_windows(settings)
    return Story(
        "Shifted windows with numbers",
        "Attention between all patches of an image is quadratic in their number. Inside windows "
        f"of {settings.window}~×~{settings.window} the cost per patch does not depend on the image size. In every "
        "other layer the windows are shifted, so that information passes between neighbouring windows.",
        (_window_step(settings, maps), _shift_step(settings, maps), _roll_step(settings, maps), _mask_step(maps)),
    )


def _window_step(settings: ShiftedWindows, maps: WindowMaps) -> Step:
    places, inside = settings.grid**2, settings.window**2
    return Step(
        "A token attends within its window",
        "Each cell of the grid has the number of its window.",
        ((NumberMatrix("windows of the first layer", maps.windows),),),
        (
            f"between all patches {places}² = {places**2:,} scores",
            f"inside windows {places // inside} × {inside}² = {places * inside:,}",
        ),
    )


def _shift_step(settings: ShiftedWindows, maps: WindowMaps) -> Step:
    return Step(
        f"The next layer's windows lie {settings.shift} further",
        "Tokens on both sides of an old border are now in one window. The border of the image splits windows, so there "
        "are more of them, of different sizes.",
        ((NumberMatrix("windows of the second layer", maps.shifted),),),
        (f"{maps.windows.max()} windows, now {maps.shifted.max()}",),
    )


def _roll_step(settings: ShiftedWindows, maps: WindowMaps) -> Step:
    return Step(
        f"The grid is rolled by {settings.shift} up and left",
        "What is cut off at one border fills the windows at the other: as many windows as before, all of one size, in "
        "one batch. After attention the grid is rolled back.",
        ((NumberMatrix("the second layer's, rolled", maps.rolled), "in", NumberMatrix("windows", maps.windows)),),
    )


def _mask_step(maps: WindowMaps) -> Step:
    return Step(
        "A mask separates tokens that are not neighbours",
        "Tokens with different numbers in one window are not neighbours in the image: a mask hides them from each "
        "other, as it does for documents packed into one row. Dark: visible keys among the "
        f"{len(maps.allowed)} tokens of the last window, row by row.",
        ((Matrix("last window", maps.allowed, colours="weights", dense=True),),),
        (
            f"{maps.masked} of {maps.windows.max()} windows need a mask",
            "with a grid of 56 × 56 and windows of 7, the first of Swin-T: 15 of 64",
        ),
    )
