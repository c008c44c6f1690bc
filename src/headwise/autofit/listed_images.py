"""Recognition of tables that list images: the column of their files, and that of labels or captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwise.autofit.columns import IDENTIFIER_NAMES, LABEL_NAMES, MAX_LABELS, TEXT_NAMES, Column, matches
from headwise.autofit.roles import Reading, describe_labels, describe_name
from headwise.data.parts import find_part
from headwise.errors import UserError
from headwise.vision.decode import SUFFIXES
from headwise.vision.image_index import resolve_below
from headwise.vision.readers.listed import find_listed

SAMPLE = 5  # names of images that are looked for in a folder
MAX_NAME = 200  # characters of a name


def find_image_root(path: Path, names: Sequence[str], beside: bool = True) -> Path | None:
    """The folder that these names of images start from: that of the table, one in it, one beside it; of several, that
    of the table's part."""
    part = find_part(path.name) or "train"
    above = path.parent.parent if path.parent.name else path.parent / ".."
    for parent in (path.parent, above)[: 1 + beside]:
        folders = _list_folders(parent)
        folders.sort(key=lambda folder: find_part(folder.name) != part)
        for folder in (parent, *folders):
            if all(_is_image(folder, name) for name in names[:SAMPLE]):
                return folder
    return None


def _list_folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _is_image(folder: Path, name: str) -> bool:
    try:
        file = find_listed(resolve_below(folder, name, ""))
        return file.suffix.lower() in SUFFIXES and file.is_file()
    except (UserError, OSError):
        return False


def find_images(path: Path, table: Sequence[Column]) -> tuple[Column, Path] | None:
    """The column of a table whose cells name images, and the folder where these are; None if there is none."""
    for column in table:
        names = column.filled[:SAMPLE]
        if not names or any(len(name) > MAX_NAME or "://" in name for name in names):
            continue
        named = all(Path(name.partition("#")[0]).suffix.lower() in SUFFIXES for name in names)
        if not named and not (column.mean_words == 1 and matches(IDENTIFIER_NAMES, column.name)):
            continue
        if root := find_image_root(path, names, beside=named):
            return column, root
        if named and not any(other.role == "text" for other in table if other is not column):
            raise UserError(
                f"{path}: {describe_name(column.name)} names images ({names[0]}), which are not in {path.parent} or in "
                "a folder in or beside it; put the table where its names start"
            )
    return None


def read_images(
    path: Path, table: Sequence[Column], image: Column, columns: Sequence[Column], shape: str
) -> list[Reading]:
    """The ways to read a table of images, the most likely first: labels, or captions."""
    readings = []
    targets = [column for column in columns or table if column is not image]
    named = [column for column in targets if matches(LABEL_NAMES, column.name)]
    for target in (*named, *(column for column in targets if column not in named)):
        if _has_classes(target) and not matches(TEXT_NAMES, target.name) and shape != "captions":
            readings.append(
                Reading("images", (image, target), f"an image and a label a row; {describe_labels(target)}")
            )
        elif target.role == "text" or (target.role == "label" and not target.numeric):
            reason = f"an image and a caption a row; {describe_name(target.name)} has texts"
            readings.append(Reading("captions", (image, target), reason))
    if not readings:
        found = ", ".join(f"{describe_name(column.name)}: {column.role}" for column in targets) or "no other column"
        raise UserError(
            f"{path}: lists images ({describe_name(image.name)}) without classes or captions ({found}), and numbers or "
            "lists are not learnt from images; add a column of labels or of captions"
        )
    return sorted(readings, key=lambda reading: (reading.columns[1] not in named, reading.shape != "captions"))


def _has_classes(column: Column) -> bool:
    """Whether the cells are labels; of images also whole numbers of many classes."""
    return column.role == "label" or (column.whole and column.repeated and len(column.counts) <= MAX_LABELS)
