"""What a user's files were taken for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.autofit.roles import Reading, Shape
from headwise.errors import UserError


@dataclass(frozen=True)
class Recognition:
    """What a user's files were taken for: the shape of their examples, the `[data]` table that reads them, and why."""

    shape: Shape
    data: Mapping[str, Any]
    reason: str
    alternatives: tuple[Reading, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str | int, ...]:
        return tuple(self.data.get("columns", ()))


_SHAPES: dict[str, str] = {
    "pairs": "pairs of a source and a target text",
    "labelled": "labelled texts",
    "numbers": "texts with a number to predict",
    "texts": "plain texts",
    "tagged": "tagged words",
    "spans": "questions with answers in a text",
    "images": "images by class",
    "boxes": "images with boxes",
    "captions": "images with captions",
}


def describe_shape(shape: str) -> str:
    """
    >>> describe_shape("tagged")
    'tagged words'
    """
    return " or ".join(_SHAPES[name] for name in shape.split(" or "))


def choose(found: Recognition, shape: str, path: Path) -> Recognition:
    """The recognition, if it has the shape that the user asks for."""
    if shape and found.shape != shape:
        if shape == "texts" and found.shape == "pairs":
            return replace(found, shape="texts", data={**found.data, "format": "lines"})
        raise UserError(
            f"{path}: looks like {describe_shape(found.shape)} ({found.reason}), not like {describe_shape(shape)}"
        )
    return found
