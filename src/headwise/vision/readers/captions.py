"""Image captions as TSV: `file TAB caption`."""

from __future__ import annotations

from pathlib import Path

from headwise.data.files import read_lines
from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.image_index import ImageFiles, ImageIndex, resolve_below
from headwise.vision.readers.base import split_paths


def read_captions(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index the images of a list of captions; an image may have several."""
    path, folder = split_paths(paths)
    files, captions = list[Path](), list[str]()
    for number, line in read_lines(path):
        if not line.strip():
            continue
        name, _, caption = line.partition("\t")
        if not caption.strip() or "\t" in caption:
            raise UserError(f"{path}, line {number}: write the image's file, one tab and its caption")
        files.append(resolve_below(folder, name, f"{path}, line {number}"))
        captions.append(caption.strip())
    if not files:
        raise UserError(f"{path}: has no captions; write lines of an image's file, a tab and its caption")
    return {"": ImageIndex(ImageFiles(tuple(files)), captions, [str(file) for file in files])}
