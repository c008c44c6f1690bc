"""Sinusoidal positions (Vaswani et al. 2017, section 3.5): their table, the rotation property, and simpler encodings.

PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(p / 10000^(2i/d)), i from 0.
DISCREPANCY: tensor2tensor concatenates all sines and all cosines instead of interleaving them; the same
numbers in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.errors import UserError
from headwise.explain.source import MAX_SIZE
from headwise.explain.story import Matrix, Step, Story

Floats = NDArray[np.float64]
MAX_POSITION = 1000  # positions up to which the requirements are checked


@dataclass(frozen=True)
class PositionSettings:
    """Length and width of the table of positions, and the shift of the rotation."""

    width: int = 8
    length: int = 10
    shift: int = 3

    def __post_init__(self) -> None:
        if self.width < 2 or self.width % 2 or self.width > MAX_SIZE:
            raise UserError(f"--width {self.width}: must be even and between 2 and {MAX_SIZE}, to be shown in numbers")
        if not 2 <= self.length <= 4 * MAX_SIZE:
            raise UserError(f"--length {self.length}: must be between 2 and {4 * MAX_SIZE}, to be shown in numbers")
        if not 1 <= self.shift <= MAX_POSITION:
            raise UserError(f"--shift {self.shift}: must be between 1 and {MAX_POSITION}")


def frequencies(width: int) -> Floats:
    """ω_i = 10000^(−2i/d), one per pair of columns."""
    return 10000.0 ** (-np.arange(0, width, 2) / width)


def sinusoid(positions: ArrayLike, width: int) -> Floats:
    """The table, one row per position: (positions,) -> (positions, width).

    >>> sinusoid([1], 4).round(6).tolist()
    [[0.841471, 0.540302, 0.01, 0.99995]]
    """
    angles = np.asarray(positions, dtype=float)[:, None] * frequencies(width)  # (P,) -> (P, width / 2)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(angles), width)


def rotation_matrix(shift: int, width: int) -> Floats:
    """R_k with PE(p + k) = R_k PE(p) for every p: a 2×2 rotation by k ω_i for each pair, (width, width)."""
    matrix = np.zeros((width, width))
    for pair, angle in enumerate(shift * frequencies(width)):
        cos, sin = np.cos(angle), np.sin(angle)
        matrix[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[cos, sin], [-sin, cos]]
    return matrix


# Simpler alternatives; each maps positions to a table of vectors.
ENCODINGS: dict[str, Callable[[Floats], Floats]] = {
    "integer": lambda p: p[:, None],
    "sigmoid": lambda p: (1 / (1 + np.exp(-p)))[:, None],
    "slow sine": lambda p: np.sin(p * np.pi / 2 / MAX_POSITION)[:, None],
    "sinusoid": lambda p: sinusoid(p, 8),
}


def measure_requirements(table: Floats) -> tuple[float, float]:
    """(largest absolute value, distance of the two closest positions) of a table of positions."""
    closest = min(np.linalg.norm(table[k:] - table[:-k], axis=1).min() for k in range(1, len(table)))
    return float(np.abs(table).max()), float(closest)


def to_json(settings: PositionSettings) -> dict[str, Any]:
    """All values of the story, as plain data."""
    far = np.arange(MAX_POSITION + 1.0)
    return {
        "table": sinusoid(np.arange(settings.length), settings.width).tolist(),
        "wavelengths": (2 * np.pi / frequencies(settings.width)).tolist(),
        "shift": settings.shift,
        "rotation": rotation_matrix(settings.shift, settings.width).tolist(),
        "requirements": {
            name: dict(zip(("largest", "closest"), measure_requirements(encode(far)), strict=True))
            for name, encode in ENCODINGS.items()
        },
    }


def build_story(settings: PositionSettings) -> Story:
    """The table, its picture, the rotation property, and the encodings that fail."""
    return Story(
        "Positions with numbers",
        "Attention ignores order: without positions, shuffled words give shuffled outputs. So a vector for its "
        "position is added to each token's embedding. Each position needs the same vector in every text, the "
        "values must stay small beside the embeddings, and no two positions may look alike.",
        (_table_step(settings), _picture_step(), _rotation_step(settings), _alternatives_step()),
    )


def _table_step(settings: PositionSettings) -> Step:
    table = sinusoid(np.arange(settings.length), settings.width)
    columns = tuple(f"{'cos' if i % 2 else 'sin'} {i // 2}" for i in range(settings.width))
    waves = 2 * np.pi / frequencies(settings.width)
    return Step(
        "Each pair of columns is a clock hand",
        f"PE(p,~2i)~=~sin(p~ω_i) and PE(p,~2i+1)~=~cos(p~ω_i) with ω_i~=~10000^(−2i/{settings.width}), i from 0. The "
        "first pair turns fast, the last hardly moves, like the hands of a clock.",
        (
            (
                Matrix(
                    "PE(p), one row per position",
                    table,
                    tuple(f"p={p}" for p in range(settings.length)),
                    columns,
                    4,
                    "signed",
                ),
            ),
        ),
        (
            "one turn takes " + ", ".join(f"{wave:,.1f}" for wave in waves) + " positions",
            f"PE(1) starts with sin(1) = {np.sin(1):.6f}",
        ),
    )


def _picture_step() -> Step:
    table = sinusoid(np.arange(32), 64)
    sines, cosines = table[:, 0::2], table[:, 1::2]
    return Step(
        "The whole table at a glance",
        "Width 64, positions 0 to 31 downwards, the even (sine) and the odd (cosine) columns apart: fast on the "
        "left, slow on the right. Every row is different; none depends on the text or its length.",
        (
            (
                Matrix("columns 0, 2, … 62", sines, colours="signed", dense=True),
                Matrix("columns 1, 3, … 63", cosines, colours="signed", dense=True),
            ),
        ),
    )


def _rotation_step(settings: PositionSettings) -> Step:
    k, width = settings.shift, settings.width
    rotation = rotation_matrix(k, width)
    position = min(2, settings.length - 1)
    before, after = sinusoid([position, position + k], width)
    positions = np.arange(100)
    error = np.abs(sinusoid(positions + k, width) - sinusoid(positions, width) @ rotation.T).max()
    return Step(
        f"A shift by {k} is a rotation, the same everywhere",
        f"PE(p~+~{k})~=~R~PE(p): each pair of columns turns by the angle {k}~ω_i, whatever p is. So “{k} tokens "
        "further” is one matrix, which a head can learn; and PE(p)~·~PE(q) depends on q~−~p alone.",
        (
            (
                Matrix(f"R, shift {k}", rotation, colours="signed"),
                "×",
                Matrix(f"PE({position})", before[:, None], colours="signed"),
                "=",
                Matrix(f"PE({position + k})", after[:, None], colours="signed"),
            ),
        ),
        (f"largest error over p = 0 … 99: {error:.0e}",),
    )


def _alternatives_step() -> Step:
    shown = np.array([0, 1, 2, 10, 100, MAX_POSITION], dtype=float)
    names = tuple(ENCODINGS)
    far = np.arange(MAX_POSITION + 1.0)
    samples = np.array([ENCODINGS[name](shown)[:, 0] for name in names])
    verdicts = np.array([measure_requirements(ENCODINGS[name](far)) for name in names])
    return Step(
        "Why not something simpler?",
        "Integers grow without bound and drown the embedding. A sigmoid is bounded, but soon all positions are 1. "
        "One sine, slow enough not to repeat, hardly tells neighbours apart. Sinusoids of many speeds stay within "
        f"±1 and keep every two of {MAX_POSITION:,} positions apart.",
        (
            (Matrix("first value at position p", samples, names, tuple(f"p={p:.0f}" for p in shown), 4),),
            (
                Matrix(
                    f"over positions 0 to {MAX_POSITION}",
                    verdicts,
                    names,
                    ("largest value", "closest two"),
                    6,
                ),
            ),
        ),
    )
