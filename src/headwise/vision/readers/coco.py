"""COCO's JSON of images with boxes (Lin et al. 2014)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headwise.data.files import open_file
from headwise.errors import UserError
from headwise.vision.boxes import Boxes
from headwise.vision.config import ImagesConfig
from headwise.vision.decode import compute_crop
from headwise.vision.image_index import ImageFiles, ImageIndex, resolve_below
from headwise.vision.readers.base import split_paths

FIELDS = {
    "images": ("id", "file_name", "width", "height"),
    "annotations": ("image_id", "category_id", "bbox"),
    "categories": ("id", "name"),
}
Table = list[Mapping[str, Any]]


def read_coco(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index all images with their boxes, which may be none; boxes are cropped and resized as the images are."""
    path, folder = split_paths(paths)
    images, annotations, categories = _read_tables(path)
    try:
        images = sorted(images, key=lambda image: str(image["file_name"]))
        sizes = tuple((int(image["width"]), int(image["height"])) for image in images)
        labels = {category["id"]: str(category["name"]) for category in categories}
        boxes = _group_boxes([image["id"] for image in images], annotations, labels)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{path}: is not in COCO's format ({error})") from None
    if config.size:
        boxes = [_fit_boxes(own, *size, *config.size) for own, size in zip(boxes, sizes, strict=True)]
    files = tuple(resolve_below(folder, str(image["file_name"]), str(path)) for image in images)
    return {"": ImageIndex(ImageFiles(files, sizes), boxes, [str(file) for file in files])}


def _read_tables(path: Path) -> list[Table]:
    """Read the lists of `FIELDS` and check that their entries have these fields."""
    with open_file(path) as file:
        content = file.read()
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not valid JSON ({error})") from None
    for table, fields in FIELDS.items():
        rows = data.get(table) if isinstance(data, dict) else None
        if not isinstance(rows, list):
            raise UserError(f'{path}: has no list "{table}"; COCO\'s JSON has the lists {", ".join(FIELDS)}')
        for number, row in enumerate(rows):
            if missing := [name for name in fields if not isinstance(row, dict) or name not in row]:
                raise UserError(f'{path}: {table}[{number}] has no "{missing[0]}"')
    return [data[table] for table in FIELDS]


def _group_boxes(images: list[Any], annotations: Table, labels: Mapping[Any, str]) -> list[Boxes]:
    """The boxes of each image. COCO's are x, y, width and height; those without an area are dropped."""
    by_image: dict[Any, list[tuple[list[float], str, bool]]] = {image: [] for image in images}
    if not images or len(by_image) < len(images):
        raise ValueError("there are no images, or two with the same id")
    for number, annotation in enumerate(annotations):
        x, y, width, height = map(float, annotation["bbox"])
        image, category = annotation["image_id"], annotation["category_id"]
        known = image in by_image and category in labels
        if not known or not math.isfinite(x + y + width + height):
            raise ValueError(f"annotations[{number}] is of an unknown image or category, or its bbox is no box")
        if width > 0 and height > 0:
            corners = [x, y, x + width, y + height]
            by_image[image].append((corners, labels[category], bool(annotation.get("iscrowd"))))
    return [
        Boxes(
            np.array([corners for corners, _, _ in rows]),
            tuple(label for _, label, _ in rows),
            tuple(crowd for *_, crowd in rows),
        )
        for rows in by_image.values()
    ]


def _fit_boxes(boxes: Boxes, width: int, height: int, rows: int, columns: int) -> Boxes:
    """Crop and resize boxes as `decode.fit_image` does their image."""
    left, top, right, bottom = compute_crop(width, height, rows, columns)
    scaled = boxes.shift(-left, -top).scale(columns / (right - left), rows / (bottom - top))
    return scaled.clip(columns, rows)
