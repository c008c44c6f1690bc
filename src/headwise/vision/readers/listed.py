"""Images that a table lists: one of `data.columns` has their files, the next one their labels or captions.

The table is CSV, TSV, JSON lines, Parquet or Arrow, as Kaggle and `imagefolder` of `datasets` (metadata.csv) have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwise.data.config import TABLES
from headwise.data.formats import guess_format
from headwise.data.read import read_records
from headwise.data.readers.base import Columns, ReadOptions
from headwise.vision.config import ImagesConfig
from headwise.vision.decode import SUFFIXES
from headwise.vision.image_index import ImageFiles, ImageIndex, resolve_below
from headwise.vision.readers.base import split_paths


def read_listed(paths: tuple[Path, ...], config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index the images of a table, each with the cell of the second column."""
    path, folder = split_paths(paths)
    files, targets = list[Path](), list[str]()
    for place, name, target in _read_table(path, config.columns):
        files.append(find_listed(resolve_below(folder, name, place)))
        targets.append(target)
    return {"": ImageIndex(ImageFiles(tuple(files)), targets, [str(file) for file in files])}


def find_listed(path: Path) -> Path:
    """The file that a cell names: as written, without the number of a caption (`1.jpg#0`), or with an image's suffix,
    where tables have names alone."""
    if path.suffix.lower() in SUFFIXES or path.is_file():
        return path
    without = path.with_name(path.name.partition("#")[0] or path.name)
    named = (path.with_name(path.name + suffix) for suffix in SUFFIXES)
    return next((file for file in (without, *named) if file.is_file()), path)


def _read_table(path: Path, columns: Columns) -> Iterator[tuple[str, str, str]]:
    """The place, the file and the target of each row. A name says the format; otherwise it is CSV."""
    format = guess_format(path)
    format = {"squad": "json"}.get(format, format)
    options = ReadOptions(columns=columns, skip_incomplete=True)
    for record in read_records((path,), format if format in TABLES else "csv", options):
        yield f"{path}, row {record.number}", record.source, " ".join(record.target.split())
