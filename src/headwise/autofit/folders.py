"""Recognition of folders: images, texts by label, aligned texts, files for each part, data sets of `datasets`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from headwise.autofit.columns import LANGUAGES
from headwise.autofit.image_folders import recognise_images
from headwise.autofit.objects import recognise_objects
from headwise.autofit.recognition import Recognition, choose
from headwise.autofit.tables import MissingColumn
from headwise.data.compression import strip_suffix
from headwise.data.files import find_files
from headwise.data.formats import SUFFIXES as TABLE_SUFFIXES
from headwise.data.parts import PARTS, find_part, find_part_folders
from headwise.data.readers.arrow import find_splits, list_datasets_files, read_objects
from headwise.errors import UserError
from headwise.vision.decode import SUFFIXES as IMAGE_SUFFIXES

TEXTS = (".txt", ".text", ".md")
ABOUT = ("README", "LICENSE", "LICENCE", "COPYING", "CITATION", "CHANGELOG", "NOTICE", "SAMPLE_SUBMISSION")
MAX_FILES = 100_000  # files of a folder that are looked at
MAX_LOOKED_INTO = 3  # files of a folder, from which it is told that they are tables or tags, and no plain texts
MOST = 0.8  # share of the texts that are in folders of labels, from which the others are left out

Recognise = Callable[..., Recognition]


def recognise_folder(
    folder: Path,
    recognise_file: Recognise,
    recognise_aligned: Callable[[Path, Path], Recognition | None],
    columns: Sequence[str | int] = (),
    shape: str = "",
) -> Recognition:
    """Recognise a folder by the kinds of its files."""
    entries = [path for path in folder.iterdir() if not _is_hidden(path.name)]
    if len(entries) == 1 and entries[0].is_dir():  # as archives are unpacked
        return recognise_folder(entries[0], recognise_file, recognise_aligned, columns, shape)
    if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
        return _recognise_datasets(folder, columns, shape)
    every = [path for path in islice(folder.rglob("*"), MAX_FILES) if path.is_file()]
    every = [path for path in every if not any(map(_is_hidden, path.relative_to(folder).parts))]
    files = sorted(path for path in every if not path.stem.upper().startswith(ABOUT)) or sorted(every)
    if not files:
        raise UserError(f"{folder}: has no files; name a folder with texts, tables or images")
    images = [path for path in files if path.suffix.lower() in IMAGE_SUFFIXES]
    if len(images) > len(files) / 3:
        others = sorted(set(files) - set(images))
        return recognise_images(folder, images, others, recognise_file, columns, shape)
    if aligned := _find_aligned(folder, files, recognise_aligned):
        return aligned
    texts = [path for path in files if strip_suffix(path.name).lower().endswith(TEXTS)]
    if len(texts) > len(files) / 2:
        return _recognise_texts(folder, texts, recognise_file, columns, shape)
    return _recognise_files(folder, files, recognise_file, columns, shape)


def _is_hidden(name: str) -> bool:
    """Whether a file is of a system or a program: .gitattributes, __MACOSX, _SUCCESS."""
    return name.startswith((".", "__")) or (name.startswith("_") and "." not in name)


def _recognise_datasets(folder: Path, columns: Sequence[str | int], shape: str) -> Recognition:
    """A folder that `datasets` has saved, with its splits if it has some."""
    splits = find_splits(folder)
    train = Path(splits["train"]) if splits else folder
    first = list_datasets_files(train)[0]
    found = recognise_objects(first, "arrow", read_objects(first), columns, shape)
    parts = {part: [path] for part, path in splits.items() if path} or {"train": [str(folder)]}
    return replace(found, data={**found.data, **parts}, reason=f"a data set saved by `datasets`; {found.reason}")


def _find_aligned(
    folder: Path, files: Sequence[Path], recognise_aligned: Callable[[Path, Path], Recognition | None]
) -> Recognition | None:
    """Files in two languages whose names differ by a suffix (`train.en`, `train.de`), aligned line by line."""
    by_stem: dict[str, list[Path]] = {}
    for path in files:
        stem, _, language = strip_suffix(path.name).rpartition(".")
        if LANGUAGES.fullmatch(language):
            by_stem.setdefault(f"{path.parent}/{stem}", []).append(path)
    pairs = {stem: sorted(paths) for stem, paths in by_stem.items() if len(paths) == 2}
    parts = dict[str, list[str]]()
    for stem, paths in pairs.items():
        parts.setdefault(find_part(Path(stem).name) or "train", [str(path) for path in paths])
    if "train" not in parts:
        return None
    found = recognise_aligned(*map(Path, parts["train"]))
    if found is None or len([stem for stem in pairs if not find_part(Path(stem).name)]) > 1:
        return None
    parts = {part: parts[part] for part in PARTS if part in parts}
    first, second = (Path(strip_suffix(path)).suffix[1:] for path in parts["train"])
    other = " ".join(shlex.quote(path) for path in reversed(parts["train"]))
    return replace(
        found,
        data={**found.data, **parts},
        reason=f"{_list_parts(parts)}; {found.reason}",
        warnings=(f"the source is '{first}' and the target '{second}'; the other way: headwise fit {other}",),
    )


def _recognise_texts(
    folder: Path, texts: Sequence[Path], recognise_file: Recognise, columns: Sequence[str | int], shape: str
) -> Recognition:
    """Texts in a folder for each label, in parts or not; tables or tags; or plain texts."""
    if labelled := _find_labelled(folder, texts):
        return choose(labelled, shape, folder)
    looked_into = [recognise_file(path) for path in texts if len(texts) <= MAX_LOOKED_INTO]
    if looked_into and all(found.shape != "texts" for found in looked_into):
        return _recognise_files(folder, texts, recognise_file, columns, shape)
    data: dict[str, Any] = {part: [str(root)] for part, root in find_part_folders(folder).items()}
    if not data:
        data = _group_by_part(folder, texts)
        plain = any(strip_suffix(path.name).endswith(".txt") for path in texts)
        if plain and len(data) == 1 and set(texts) == set(find_files([folder])):
            data = {"train": [str(folder)]}  # not thousands of names
    elif any(strip_suffix(path.name).endswith(".md") for path in texts):
        data = _group_by_part(folder, texts)
    return choose(
        Recognition("texts", {**data, "format": "text"}, f"{len(texts):,} text files: one text each"), shape, folder
    )


def _find_labelled(folder: Path, texts: Sequence[Path]) -> Recognition | None:
    """Texts in a folder for each label. Folders that a part lacks, such as reviews without a label, are left out."""
    roots = find_part_folders(folder) or {"train": folder}
    counts = {
        part: Counter(path.relative_to(root).parts[0] for path in texts if _is_in_folder(path, root))
        for part, root in roots.items()
    }
    labels = [label for label in counts["train"] if all(count[label] for count in counts.values())]
    kept = sum(counts["train"][label] for label in labels)
    inside = sum(path.is_relative_to(roots["train"]) for path in texts)
    unlabelled = [label for label in counts["train"] if label not in labels]
    loose = inside - sum(counts["train"].values())
    if len(labels) < 2 or min(counts["train"][label] for label in labels) < 2 or loose > (1 - MOST) * inside:
        return None
    complete = not unlabelled and not loose
    data = {part: [str(root)] if complete else [str(root / label) for label in labels] for part, root in roots.items()}
    shown = ", ".join(f"{name} {count:,}" for name, count in counts["train"].most_common(6) if name in labels)
    warnings = []
    if not complete:
        names = [f"the folder '{name}'" for name in unlabelled] + ([f"{loose} beside the folders"] if loose else [])
        warnings.append(f"{inside - kept:,} texts without a label are not read ({', '.join(names)})")
    reason = f"a folder of texts for each of {len(labels)} labels ({shown})"
    return Recognition("labelled", {**data, "format": "labelled-folders"}, reason, warnings=tuple(warnings))


def _is_in_folder(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and len(path.relative_to(root).parts) > 1


def _recognise_files(
    folder: Path, files: Sequence[Path], recognise_file: Recognise, columns: Sequence[str | int], shape: str
) -> Recognition:
    """Files of one kind: those for training, validation and test, or shards."""
    suffixes = tuple(suffix for known in TABLE_SUFFIXES.values() for suffix in known)
    tables = [path for path in files if strip_suffix(path.name).lower().endswith(suffixes)]
    if not tables and all(find_part(path.name) for path in files):
        tables = list(files)  # such as eng.train, eng.testa, eng.testb
    kinds = Counter(Path(strip_suffix(path.name)).suffix for path in tables or files)
    if not tables:
        (kind, count), *_ = kinds.most_common(1)
        if not kind or count < MOST * len(files):
            _refuse_files(folder, files, kinds)
        tables = [path for path in files if Path(strip_suffix(path.name)).suffix == kind]
    elif len(kinds) > 1 and not all(find_part(path.name) for path in tables):
        raise UserError(f"{folder}: has tables of several kinds ({', '.join(kinds)}); name the files to learn from")
    parts = _group_by_part(folder, tables)
    found = recognise_file(Path(parts["train"][0]), columns, shape)
    warnings = list(found.warnings)
    for part in [part for part in parts if part != "train" and found.columns]:
        try:
            recognise_file(Path(parts[part][0]), found.columns, found.shape)
        except MissingColumn as error:
            warnings.append(f"{Path(parts[part][0]).name} is not read: {error.reason}")
            del parts[part]
    data = {**found.data, **parts}
    return replace(found, data=data, reason=f"{_list_parts(parts)}; {found.reason}", warnings=tuple(warnings))


def _group_by_part(folder: Path, paths: Sequence[Path]) -> dict[str, list[str]]:
    """The files of each part, by their names or those of their folders; all are for training if none is named so."""
    by_part: dict[str, list[str]] = {part: [] for part in PARTS}
    for path in paths:
        parents = path.relative_to(folder).parts[:-1]
        part = find_part(path.name) or next(filter(None, map(find_part, reversed(parents))), "")
        if part:
            by_part[part].append(str(path))
    if not by_part["train"]:
        return {"train": [str(path) for path in paths]}
    return {part: names for part, names in by_part.items() if names}


def _list_parts(parts: dict[str, list[str]]) -> str:
    listed = {part: ", ".join(Path(path).name for path in paths[:3]) for part, paths in parts.items()}
    more = {part: f" and {len(paths) - 3} more" if len(paths) > 3 else "" for part, paths in parts.items()}
    return "; ".join(f"{part}: {names}{more[part]}" for part, names in listed.items())


def _refuse_files(folder: Path, files: Sequence[Path], kinds: Counter[str]) -> None:
    """Refuse files of several kinds; where one command names them as they are read, with the command."""
    quoted = shlex.quote(str(folder))
    shown = ", ".join(f"{count} {kind or 'without a suffix'}" for kind, count in kinds.most_common(4))
    remedy = "name the files to learn from"
    if kinds.most_common(1)[0][0] == "":
        remedy = f"give texts a suffix: find {quoted} -type f ! -name '*.*' -exec mv {{}} {{}}.txt ';'"
    elif len(kinds) == len(files) > 1 and len({path.stem for path in files}) == 1:  # reviews.pos, reviews.neg
        target = shlex.quote(f"{folder.resolve().name}.zip")
        remedy = f"if each is a label, pack them: zip -rj {target} {quoted} && headwise fit {target}"
    raise UserError(f"{folder}: has no texts, tables or images ({shown}); {remedy}")
