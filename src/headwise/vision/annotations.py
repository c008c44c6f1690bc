"""Lists of image files: COCO's JSON with boxes (Lin et al. 2014), and TSV with captions.

A list is followed by the folder that its names start from; without one they start beside the list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headwise.data.files import open_file, read_lines
from headwise.errors import UserError
from headwise.vision.boxes import Boxes
from headwise.vision.config import ImagesConfig
from headwise.vision.decode import compute_crop
from headwise.vision.image_index import ImageFiles, ImageIndex, resolve_below


def read_captions(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Lines `file TAB caption`; an image may have several."""
    path, folder = _split_paths(paths)
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
        raise UserError(f"{path}: no captions in here; write lines of an image's file, a tab and its caption")
    return {"": ImageIndex(ImageFiles(tuple(files)), captions, [str(file) for file in files])}


def read_coco(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Every image of the list with its boxes, which may be none; they move as the image is resized and cropped."""
    path, folder = _split_paths(paths)
    images, notes, categories = _read_tables(path)
    try:
        images = sorted(images, key=lambda each: str(each["file_name"]))
        sizes = tuple((int(each["width"]), int(each["height"])) for each in images)
        boxes = _group_boxes(
            [each["id"] for each in images], notes, {each["id"]: str(each["name"]) for each in categories}
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{path}: is not as COCO's JSON should be ({error})") from None
    if config.size:
        boxes = [_fit_boxes(each, *size, *config.size) for each, size in zip(boxes, sizes, strict=True)]
    files = tuple(resolve_below(folder, str(each["file_name"]), str(path)) for each in images)
    return {"": ImageIndex(ImageFiles(files, sizes), boxes, [str(file) for file in files])}


def _split_paths(paths: tuple[Path, ...]) -> tuple[Path, Path]:
    if len(paths) > 2:
        raise UserError("[data] name one list, and where its images are elsewhere their folder")
    return paths[0], paths[-1] if len(paths) == 2 else paths[0].parent


FIELDS = {
    "images": ("id", "file_name", "width", "height"),
    "annotations": ("image_id", "category_id", "bbox"),
    "categories": ("id", "name"),
}


def _read_tables(path: Path) -> list[list[Mapping[str, Any]]]:
    """The three lists of COCO's JSON, of which each entry has what is needed."""
    with open_file(path) as file:
        content = file.read()
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not valid JSON ({error})") from None
    for table, fields in FIELDS.items():
        rows = found.get(table) if isinstance(found, dict) else None
        if not isinstance(rows, list):
            raise UserError(f'{path}: has no list "{table}"; COCO\'s JSON has the lists {", ".join(FIELDS)}')
        for number, row in enumerate(rows):
            if missing := [name for name in fields if not isinstance(row, dict) or name not in row]:
                raise UserError(f'{path}: {table}[{number}] has no "{missing[0]}"')
    return [found[table] for table in FIELDS]


def _group_boxes(images: list[Any], notes: list[Mapping[str, Any]], labels: Mapping[Any, str]) -> list[Boxes]:
    """COCO's boxes are x, y, width and height; one without an area shows nothing and is left out."""
    found: dict[Any, list[tuple[list[float], str, bool]]] = {image: [] for image in images}
    if not images or len(found) < len(images):
        raise ValueError("there are no images, or two with the same id")
    for number, note in enumerate(notes):
        x, y, width, height = map(float, note["bbox"])
        known = note["image_id"] in found and note["category_id"] in labels
        if not known or not math.isfinite(x + y + width + height):
            raise ValueError(f"annotations[{number}] is of an unknown image or category, or its bbox is no box")
        if width > 0 and height > 0:
            box = [x, y, x + width, y + height]
            found[note["image_id"]].append((box, labels[note["category_id"]], bool(note.get("iscrowd"))))
    return [
        Boxes(
            np.array([box for box, _, _ in rows]),
            tuple(name for _, name, _ in rows),
            tuple(crowd for *_, crowd in rows),
        )
        for rows in found.values()
    ]


def _fit_boxes(boxes: Boxes, width: int, height: int, rows: int, columns: int) -> Boxes:
    """The boxes in the image that `decode.fitted` makes: what of them is in its window."""
    left, top, right, bottom = compute_crop(width, height, rows, columns)
    scaled = boxes.shift(-left, -top).scale(columns / (right - left), rows / (bottom - top))
    return scaled.clip(columns, rows)
