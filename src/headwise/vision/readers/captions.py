"""Image captions: TSV of `file TAB caption`, columns of a table, or COCO's JSON with captions (Chen et al. 2015)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from headwise.data.compression import strip_suffix
from headwise.data.files import open_file, read_lines
from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.image_index import ImageFiles, ImageIndex, resolve_below
from headwise.vision.readers.base import split_paths
from headwise.vision.readers.listed import find_listed, read_listed


def read_captions(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index the images of a list of captions; an image may have several."""
    if config.columns:
        return read_listed(paths, config)
    path, folder = split_paths(paths)
    is_json = strip_suffix(path.name).lower().endswith(".json")
    files, captions = list[Path](), list[str]()
    for place, name, caption in _read_coco(path) if is_json else _read_tsv(path):
        files.append(find_listed(resolve_below(folder, name, place)))
        captions.append(caption)
    if not files:
        raise UserError(f"{path}: has no captions; write lines of an image's file, a tab and its caption")
    return {"": ImageIndex(ImageFiles(tuple(files)), captions, [str(file) for file in files])}


def _read_tsv(path: Path) -> Iterator[tuple[str, str, str]]:
    """The place, the file and the caption of each line."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        name, _, caption = line.partition("\t")
        if not caption.strip() or "\t" in caption:
            raise UserError(f"{path}, line {number}: write the image's file, one tab and its caption")
        yield f"{path}, line {number}", name, caption.strip()


def _read_coco(path: Path) -> Iterator[tuple[str, str, str]]:
    """The place, the file and the caption of each annotation."""
    with open_file(path) as file:
        content = file.read()
    try:
        data = json.loads(content)
        names = {image["id"]: str(image["file_name"]) for image in data["images"]}
        rows = [(names[row["image_id"]], " ".join(str(row["caption"]).split())) for row in data["annotations"]]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)[:80]
        raise UserError(f"{path}: is not COCO's JSON with captions ({reason}); copy it again") from None
    for number, (name, caption) in enumerate(rows, 1):
        if caption:
            yield f"{path}, annotation {number}", name, caption
