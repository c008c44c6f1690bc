"""A folder for each class: `root/cat/x.png`, or `root/train/cat/x.png` with a folder for each part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from headwise.data.parts import find_part_folders
from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.decode import SUFFIXES
from headwise.vision.image_index import ImageFiles, ImageIndex


def read_folders(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index the parts of a folder, or all of it if it has no folder `train`."""
    if len(paths) != 1:
        raise UserError('[data] format = "folders" takes one folder, with a folder for each class in it')
    (root,) = paths
    if not root.is_dir():
        raise UserError(f"{root}: there is no such folder; check the path in [data]")
    folders = find_part_folders(root)
    if not folders:
        return {"": _index_classes(root)}
    return {part: _index_classes(folder) for part, folder in folders.items() if part == "train" or _has_classes(folder)}


def _has_classes(folder: Path) -> bool:
    """Whether a part has folders; images without any, such as those of a contest's test part, have no class."""
    return any(is_folder for _, is_folder in _list_folder(folder)) or not any(_list_folder(folder))


def _index_classes(root: Path) -> ImageIndex:
    """Index the class folders directly below the root, sorted by name."""
    folders = [path for path, is_folder in _list_folder(root) if is_folder]
    images = [(folder.name, path) for folder in folders for path in _list_images(folder)]
    if not images:
        raise UserError(f"{root}: has no images; make a folder for each class and put its images there")
    labels, files = zip(*images, strict=True)
    return ImageIndex(ImageFiles(files), labels, [str(file) for file in files])


def _list_images(folder: Path) -> list[Path]:
    images = list(_walk_images(folder, ()))
    if not images:
        raise UserError(f"{folder}: the class has no images ({', '.join(SUFFIXES)}); add some or remove the folder")
    return images


def _walk_images(folder: Path, parents: tuple[Path, ...]) -> Iterator[Path]:
    resolved = folder.resolve()
    if resolved in parents:
        raise UserError(f"{folder}: this link leads back to a folder that it is in; remove it")
    for path, is_folder in _list_folder(folder):
        if is_folder:
            yield from _walk_images(path, (*parents, resolved))
        elif path.suffix.lower() in SUFFIXES:
            yield path


def _list_folder(folder: Path) -> list[tuple[Path, bool]]:
    """The entries of a folder, sorted by name, and whether each is a folder; hidden files are skipped."""
    try:
        paths = [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]
        return [(path, path.is_dir()) for path in paths]
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror})") from None
