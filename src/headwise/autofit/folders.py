"""Recognition of folders: images by class, with boxes or captions; texts by label; files for each part; `datasets`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from headwise.autofit.objects import recognise_objects
from headwise.autofit.recognition import Recognition
from headwise.data.compression import strip_suffix
from headwise.data.files import read_lines
from headwise.data.formats import SUFFIXES as TABLE_SUFFIXES
from headwise.data.readers.arrow import find_splits, list_datasets_files, read_objects
from headwise.data.readers.json import read_members
from headwise.errors import UserError
from headwise.vision.decode import SUFFIXES as IMAGE_SUFFIXES

PARTS = {"train": ("train",), "valid": ("valid", "val", "validation", "dev"), "test": ("test",)}
TEXTS = (".txt", ".text", ".md")
MAX_FILES = 100_000  # files of a folder that are looked at

RecogniseFile = Callable[..., Recognition]


def recognise_folder(
    folder: Path, recognise_file: RecogniseFile, columns: Sequence[str | int] = (), shape: str = ""
) -> Recognition:
    """Recognise a folder by the kinds of its files."""
    entries = [path for path in folder.iterdir() if not _is_hidden(path)]
    if len(entries) == 1 and entries[0].is_dir():  # as archives are unpacked
        return recognise_folder(entries[0], recognise_file, columns, shape)
    if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
        return _recognise_datasets(folder, columns, shape)
    files = sorted(path for path in islice(folder.rglob("*"), MAX_FILES) if path.is_file() and not _is_hidden(path))
    if not files:
        raise UserError(f"{folder}: has no files; name a folder with texts, tables or images")
    images = [path for path in files if path.suffix.lower() in IMAGE_SUFFIXES]
    if len(images) > len(files) / 2:
        return _recognise_images(folder, images, [path for path in files if path not in set(images)], recognise_file)
    texts = [path for path in files if strip_suffix(path.name).lower().endswith(TEXTS)]
    if len(texts) > len(files) / 2:
        return _recognise_texts(folder, texts)
    return _recognise_tables(folder, files, recognise_file, columns, shape)


def _is_hidden(path: Path) -> bool:
    return path.name.startswith((".", "_"))


def _recognise_datasets(folder: Path, columns: Sequence[str | int], shape: str) -> Recognition:
    """A folder that `datasets` has saved, with its splits if it has some."""
    splits = find_splits(folder)
    train = Path(splits["train"]) if splits else folder
    first = list_datasets_files(train)[0]
    found = recognise_objects(first, "arrow", read_objects(first), columns, shape)
    parts = {part: [path] for part, path in splits.items() if path} or {"train": [str(folder)]}
    return replace(found, data={**found.data, **parts}, reason=f"a data set saved by `datasets`; {found.reason}")


def _recognise_images(
    folder: Path, images: Sequence[Path], others: Sequence[Path], recognise_file: RecogniseFile
) -> Recognition:
    data: dict[str, Any] = {"kind": "images"}
    for path in others:
        if path.suffix.lower() == ".json" and _is_coco(path):
            return recognise_file(path)
        if path.suffix.lower() in (".tsv", ".txt") and (captioned := _find_captioned(path, folder, images)):
            data |= {"format": "captions", "train": [str(path), str(captioned)]}
            return Recognition("captions", data, f"images, and a caption of each in {path.name}")
    root = folder / "train" if (folder / "train").is_dir() else folder
    classes = Counter(path.relative_to(root).parts[0] for path in images if _is_in_class(path, root))
    if len(classes) < 2:
        raise UserError(
            f"{folder}: has {len(images):,} images and no classes; make a folder for each class, or add boxes "
            "(COCO's JSON) or captions (lines of FILE, a tab and the caption)"
        )
    shown = ", ".join(f"{name} {count:,}" for name, count in classes.most_common(6))
    more = f" and {len(classes) - 6} more" if len(classes) > 6 else ""
    data |= {"format": "folders", "train": [str(folder)]}
    return Recognition("images", data, f"a folder of images for each of {len(classes)} classes ({shown}{more})")


def _is_in_class(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and len(path.relative_to(root).parts) > 1


def _is_coco(path: Path) -> bool:
    """Whether a file has the keys of COCO's JSON with boxes or captions."""
    try:
        keys = {member.key: member.value for member in read_members(path)}
    except UserError:
        return False
    annotation = keys.get("annotations")
    return "images" in keys and isinstance(annotation, dict) and bool({"bbox", "caption"} & annotation.keys())


def _find_image_root(folder: Path, images: Sequence[Path]) -> Path:
    """The folder that all images are directly in; of several, the given one."""
    parents = {path.parent for path in images}
    return parents.pop() if len(parents) == 1 else folder


def _find_captioned(path: Path, folder: Path, images: Sequence[Path]) -> Path | None:
    """The folder from which the first column of a TSV names images; None if it names none."""
    lines = [line.split("\t") for _, line in islice(read_lines(path), 100) if line.strip()]
    if not lines or any(len(cells) != 2 for cells in lines):
        return None
    roots = dict.fromkeys((folder, path.parent, _find_image_root(folder, images)))
    return next((root for root in roots if all((root / cells[0]).is_file() for cells in lines)), None)


def _recognise_texts(folder: Path, texts: Sequence[Path]) -> Recognition:
    """Texts in a folder for each label, in parts or not, or plain texts."""
    parts = {part: root for part, names in PARTS.items() for name in names if (root := folder / name).is_dir()}
    roots = parts if "train" in parts else {"train": folder}
    labels = Counter(path.relative_to(roots["train"]).parts[0] for path in texts if _is_in_class(path, roots["train"]))
    loose = sum(path.parent == roots["train"] for path in texts)
    data: dict[str, Any] = {part: [str(root)] for part, root in roots.items()}
    if len(labels) >= 2 and not loose and min(labels.values()) >= 2:
        shown = ", ".join(f"{name} {count:,}" for name, count in labels.most_common(6))
        reason = f"a folder of texts for each of {len(labels)} labels ({shown})"
        return Recognition("labelled", {**data, "format": "labelled-folders"}, reason)
    if any(strip_suffix(path.name).endswith(".md") for path in texts):
        data = {"train": [str(path) for path in texts]}
    return Recognition("texts", {**data, "format": "text"}, f"{len(texts):,} text files: one text each")


def _recognise_tables(
    folder: Path, files: Sequence[Path], recognise_file: RecogniseFile, columns: Sequence[str | int], shape: str
) -> Recognition:
    """Tables of one kind: files for training, validation and test, or shards."""
    suffixes = tuple(suffix for known in TABLE_SUFFIXES.values() for suffix in known)
    tables = [path for path in files if strip_suffix(path.name).lower().endswith(suffixes)]
    kinds = Counter(Path(strip_suffix(path.name)).suffix for path in tables)
    if not tables:
        kinds = Counter(path.suffix or "no suffix" for path in files)
        shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(4))
        raise UserError(f"{folder}: has no texts, tables or images ({shown}); name the files to learn from")
    if len(kinds) > 1:
        raise UserError(f"{folder}: has tables of several kinds ({', '.join(kinds)}); name the files to learn from")
    by_part = {part: [path for path in tables if _is_part(path, names)] for part, names in PARTS.items()}
    if not by_part["train"]:
        by_part = {"train": tables}
    found = recognise_file(by_part["train"][0], columns, shape)
    parts = {part: [str(path) for path in paths] for part, paths in by_part.items() if paths}
    listed = "; ".join(f"{part}: {', '.join(Path(path).name for path in paths[:3])}" for part, paths in parts.items())
    return replace(found, data={**found.data, **parts}, reason=f"{listed}; {found.reason}")


def _is_part(path: Path, names: Sequence[str]) -> bool:
    """Whether a file's name, or its folder's, begins with the name of a part."""
    stems = (strip_suffix(path.name).lower(), path.parent.name.lower())
    return any(
        stem == name or stem.startswith((f"{name}.", f"{name}-", f"{name}_")) for stem in stems for name in names
    )
