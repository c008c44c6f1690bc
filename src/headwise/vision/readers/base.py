"""The interface of a reader: files -> an index of the images of each part in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.image_index import ImageIndex

# The key is the name of a part, or "" for whichever part the paths are given for.
Reader = Callable[[tuple[Path, ...], ImagesConfig], dict[str, ImageIndex]]


def split_paths(paths: tuple[Path, ...]) -> tuple[Path, Path]:
    """A list of images and the folder that its names start from: the second path, or else the folder of the list."""
    if len(paths) > 2:
        raise UserError("[data] takes one list of images, and their folder if it is elsewhere")
    return paths[0], paths[-1] if len(paths) == 2 else paths[0].parent
