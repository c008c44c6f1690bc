"""Drawing of worlds: shapes that are stamped on frames, palettes, distractors.

Letters: N frames, K pixels of a shape.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
from pydantic import Field

from headwise.worlds.base import SIDE, Arrays, Settings, World, WorldConfig

Colours = Literal["standard", "shifted", "random"]
SHIFT = np.array([31, -57, 83], np.int16)  # of the colours of "shifted"
DRIFT = 0.75  # pixels that a distractor moves in a step
BLOB = 6  # pixels of a distractor, and of its distance to the edges


@cache
def make_box(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The pixels of a box, as offsets of rows and columns from its upper left corner: (K,) each."""
    row, column = np.mgrid[:rows, :columns]
    return row.ravel(), column.ravel()


@cache
def make_disc(side: int) -> tuple[np.ndarray, np.ndarray]:
    """The pixels of a disc with this diameter, as `make_box` gives them."""
    row, column = np.mgrid[:side, :side] - (side - 1) / 2
    return np.nonzero(row**2 + column**2 <= (side / 2) ** 2)  # type: ignore[return-value]


def stamp(
    frames: np.ndarray, shape: tuple[np.ndarray, np.ndarray], top: np.ndarray, left: np.ndarray, colour: np.ndarray
) -> None:
    """Draw a shape on each frame (N, 64, 64, 3), at rows and columns (N,), which are moved inside, in colours (N, 3)
    or (3,)."""
    rows, columns = shape
    top = np.clip(top.astype(np.int64), 0, SIDE - 1 - rows.max())
    left = np.clip(left.astype(np.int64), 0, SIDE - 1 - columns.max())
    first = (np.arange(len(frames)) * SIDE + top) * SIDE + left
    pixels = first[:, None] + (rows * SIDE + columns)  # (N, K)
    frames.reshape(-1, 3)[pixels] = colour if colour.ndim == 1 else colour[:, None]


class SceneConfig(WorldConfig):
    """Settings of what is drawn and has no effect: an agent should not heed it."""

    colours: Colours = "standard"  # shifted: all colours changed; random: others in each episode
    distractors: int = Field(0, ge=0, le=16)  # coloured blobs that drift over the frame


class Scene:
    """Palette and distractors of N copies, in the arrays of their world: `palette` (N, P, 3), and of D distractors
    `blobs` (N, D, 3), which are row, column and direction, and `blob_colours` (N, D, 3)."""

    def __init__(self, config: SceneConfig, palette: np.ndarray):
        self.config, self.standard = config, palette
        if config.colours == "shifted":
            self.standard = (palette.astype(np.int16) + SHIFT).astype(np.uint8)  # modulo 256

    def make_arrays(self, count: int) -> Arrays:
        blobs = self.config.distractors
        return {
            "palette": np.tile(self.standard, (count, 1, 1)),
            "blobs": np.zeros((count, blobs, 3), np.float32),
            "blob_colours": np.zeros((count, blobs, 3), np.uint8),
        }

    def start(self, world: World[Settings], rows: np.ndarray) -> None:
        """Draw colours and blobs at the beginning of an episode."""
        arrays, count = world.arrays, self.config.distractors
        if self.config.colours == "random":
            colours = world.draw_aside(rows, self.standard.size, salt=1)
            arrays["palette"][rows] = (256 * colours).reshape(-1, *self.standard.shape)
        if count:
            numbers = world.draw_aside(rows, 6 * count, salt=2).reshape(-1, count, 6)
            arrays["blobs"][rows, :, :2] = numbers[:, :, :2] * (SIDE - BLOB)
            arrays["blobs"][rows, :, 2] = np.where(numbers[:, :, 2] < 0.5, -DRIFT, DRIFT)
            arrays["blob_colours"][rows] = 256 * numbers[:, :, 3:]

    def advance(self, arrays: Arrays) -> None:
        """Let the blobs drift; they turn at the edges."""
        if self.config.distractors:
            blobs = arrays["blobs"]
            blobs[:, :, 1] += blobs[:, :, 2]
            outside = (blobs[:, :, 1] < 0) | (blobs[:, :, 1] > SIDE - BLOB)
            blobs[:, :, 2] = np.where(outside, -blobs[:, :, 2], blobs[:, :, 2])

    def render_blobs(self, arrays: Arrays, frames: np.ndarray) -> None:
        for number in range(self.config.distractors):
            row, column, _ = arrays["blobs"][:, number].T
            stamp(frames, make_disc(BLOB), row, column, arrays["blob_colours"][:, number])


def fill(colours: np.ndarray) -> np.ndarray:
    """Frames of one colour each: (N, 3) -> (N, 64, 64, 3)."""
    frames = np.empty((len(colours), SIDE, SIDE, 3), np.uint8)
    rows = np.tile(colours, (1, SIDE)).reshape(len(colours), 1, SIDE, 3)  # a row of each, which is copied in one piece
    frames[:] = rows
    return frames


def paint(kinds: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """Frames (N, 64, 64, 3) of kinds of pixels (N, 64 * 64) and palettes (N, P, 3). A gather of three bytes is slow, so
    colours are gathered as words, of which three hold the twelve bytes of four pixels."""
    count = palette.shape[1]
    words = (palette.astype("<u4") * np.array([1, 1 << 8, 1 << 16], "<u4")).sum(2, dtype="<u4").reshape(-1)
    numbers = kinds + np.arange(0, count * len(kinds), count)[:, None]
    a, b, c, d = np.moveaxis(words.take(numbers, mode="clip").reshape(len(kinds), -1, 4), 2, 0)
    packed = np.empty((len(kinds), SIDE * SIDE // 4, 3), "<u4")
    packed[:, :, 0] = a | b << 24
    packed[:, :, 1] = b >> 8 | c << 16
    packed[:, :, 2] = c >> 16 | d << 8
    return packed.view(np.uint8).reshape(len(kinds), SIDE, SIDE, 3)
