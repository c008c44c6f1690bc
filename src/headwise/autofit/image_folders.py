"""Recognition of folders of images: by class, with boxes, with captions, or listed in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from headwise.autofit.listed_images import find_image_root
from headwise.autofit.recognition import Recognition, choose
from headwise.data.compression import strip_suffix
from headwise.data.files import read_lines
from headwise.data.parts import find_part, find_part_folders
from headwise.data.readers.json import read_members
from headwise.errors import UserError

RecogniseFile = Callable[..., Recognition]
LISTS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".parquet")  # of files that may list images
MAX_LISTS = 20  # files that are tried


def recognise_images(
    folder: Path,
    images: Sequence[Path],
    others: Sequence[Path],
    recognise_file: RecogniseFile,
    columns: Sequence[str | int],
    shape: str,
) -> Recognition:
    """Recognise images by what is beside them: COCO's JSON, tables that list them, or their folders."""
    if found := _find_coco(others, recognise_file, shape):
        return found
    if found := _find_lists(folder, images, others, recognise_file, columns, shape):
        return found
    _refuse_boxes(folder, images, others)
    root = find_part_folders(folder).get("train", folder)
    classes = Counter(path.relative_to(root).parts[0] for path in images if _is_in_class(path, root))
    if len(classes) < 2:
        raise UserError(
            f"{folder}: has {len(images):,} images and no classes; make a folder for each class, or add a table of "
            "their files and labels or captions (CSV with a header), or boxes (COCO's JSON)"
        )
    shown = ", ".join(f"{name} {count:,}" for name, count in classes.most_common(6))
    more = f" and {len(classes) - 6} more" if len(classes) > 6 else ""
    reason = f"a folder of images for each of {len(classes)} classes ({shown}{more})"
    data: dict[str, Any] = {"kind": "images", "format": "folders", "train": [str(folder)]}
    return choose(Recognition("images", data, reason), shape, folder)


def _is_in_class(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and len(path.relative_to(root).parts) > 1


def _find_coco(others: Sequence[Path], recognise_file: RecogniseFile, shape: str) -> Recognition | None:
    """Boxes or captions in COCO's JSON; of several files, those of the shape that is asked for, with a file for each
    part."""
    found = list[Recognition]()
    for path in others:
        if path.suffix.lower() == ".json" and _is_coco(path):
            found.append(recognise_file(path))
    found = [each for each in found if not shape or each.shape == shape] or found
    kinds = sorted({each.shape for each in found})  # boxes before captions
    parts = _group_parts([each for each in found if each.shape == kinds[0]]) if kinds else {}
    if not parts:
        return None
    first = parts["train"]
    data = {**first.data, **{part: each.data["train"] for part, each in parts.items()}}
    others_told = tuple(
        f"{each.data['train'][0]} has {each.shape} of the images, too, and is not read; name it to learn from it"
        for each in found
        if each.shape != kinds[0]
    )
    return choose(replace(first, data=data, warnings=others_told[:1]), shape, Path(first.data["train"][0]))


def _group_parts(found: Sequence[Recognition]) -> dict[str, Recognition]:
    """What was recognised for each part, by the names of the lists and of their folders; the first list is that of
    training if none is named so."""
    by_part = dict[str, Recognition]()
    for each in found:
        path = Path(each.data["train"][0])
        by_part.setdefault(find_part(path.name) or find_part(path.parent.name) or "train", each)
    if found:
        by_part.setdefault("train", found[0])
    return by_part


def _is_coco(path: Path) -> bool:
    """Whether a file has the keys of COCO's JSON with boxes or captions."""
    try:
        keys = {member.key: member.value for member in read_members(path)}
    except UserError:
        return False
    annotation = keys.get("annotations")
    return "images" in keys and isinstance(annotation, dict) and bool({"bbox", "caption"} & annotation.keys())


def _find_lists(
    folder: Path,
    images: Sequence[Path],
    others: Sequence[Path],
    recognise_file: RecogniseFile,
    columns: Sequence[str | int],
    shape: str,
) -> Recognition | None:
    """Tables that list the images of the folder, one for each part, or one of all."""
    found, errors = list[Recognition](), list[UserError]()
    lists = [path for path in others if strip_suffix(path.name).lower().endswith(LISTS)]
    for path in lists[:MAX_LISTS]:
        if captions := _find_captions(path):
            found.append(captions)
            continue
        try:
            each = recognise_file(path, columns, shape)
        except UserError as error:  # other files may be lists, or there may be folders of classes
            errors.append(error)
            continue
        if each.data.get("kind") == "images":
            found.append(each)
    by_part = _group_parts(found)
    if not by_part:
        if errors and len({path.parent for path in images}) == 1:
            raise errors[0]
        return None
    first = by_part["train"]
    same = {part: each for part, each in by_part.items() if each.columns == first.columns}
    data = {**first.data, **{part: each.data["train"] for part, each in same.items()}}
    names = ", ".join(str(Path(each.data["train"][0]).relative_to(folder)) for each in same.values())
    return choose(replace(first, data=data, reason=f"{names} lists images: {first.reason}"), shape, folder)


def _find_captions(path: Path) -> Recognition | None:
    """Lines of an image's file, a tab and its caption, without a header."""
    if not path.name.lower().endswith((".tsv", ".txt")):
        return None
    lines = [line.split("\t") for _, line in islice(read_lines(path), 100) if line.strip()]
    if not lines or any(len(cells) != 2 for cells in lines) or not any(" " in cells[1] for cells in lines):
        return None
    root = find_image_root(path, [cells[0] for cells in lines])
    if root is None:
        return None
    data = {"kind": "images", "format": "captions", "train": [str(path), str(root)]}
    return Recognition("captions", data, f"images, and a caption of each in {path.name}")


def _refuse_boxes(folder: Path, images: Sequence[Path], others: Sequence[Path]) -> None:
    """Refuse boxes in a file for each image: those of YOLO and of PASCAL VOC."""
    names = {path.stem for path in images}
    for suffix, kind in ((".xml", "PASCAL VOC"), (".txt", "YOLO")):
        count = sum(path.suffix.lower() == suffix and path.stem in names for path in others)
        if count >= len(images) / 2:
            raise UserError(
                f"{folder}: has {len(images):,} images with a {suffix} file each, as {kind} writes boxes; write them "
                "as COCO's JSON beside the images, with the lists images, annotations and categories"
            )
