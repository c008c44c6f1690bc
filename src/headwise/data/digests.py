"""SHA-256 digests of data files, kept in the cache with the tokenised data: a file is hashed again only if its size or
modification time has changed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headwise.data.cache import load_or_build
from headwise.errors import UserError
from headwise.runs.data_record import FileRecord
from headwise.utils.files import open_regular, read_json

DATASETS_FILES = ("state.json", "dataset_info.json", "../dataset_dict.json")  # beside the .arrow files of `datasets`


def record_files(files: Iterable[Path], cache: Path) -> list[FileRecord]:
    """Size, time and digest of each of these files."""
    paths = list(dict.fromkeys(_add_metadata(files)))
    facts = [_stat(path) for path in paths]
    digests = load_digests(paths, cache)
    return [FileRecord(str(path), *fact, sha) for path, fact, sha in zip(paths, facts, digests, strict=True)]


def load_digests(paths: Sequence[Path], cache: Path) -> list[str]:
    """The SHA-256 of each file, from the cache where it has them."""
    facts = [(str(path.absolute()), *_stat(path)) for path in paths]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]

    def build(folder: Path) -> None:
        (folder / "sha256.json").write_text(json.dumps([digest_file(path) for path in paths]))

    def load(folder: Path) -> list[str]:
        stored = read_json(folder / "sha256.json")
        if not isinstance(stored, list) or len(stored) != len(paths):
            raise ValueError("it has digests of other files")
        return stored

    try:
        return load_or_build(cache / f"{key}-digests", build, load)
    except UserError:  # the cache cannot be written
        return [digest_file(path) for path in paths]


def digest_file(path: Path) -> str:
    """The SHA-256 of a file, read in blocks."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path in [data]") from None


def _stat(path: Path) -> tuple[int, int]:
    try:
        facts = path.stat()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path in [data]") from None
    return facts.st_size, facts.st_mtime_ns


def _add_metadata(files: Iterable[Path]) -> Iterator[Path]:
    """The files, and those that say which .arrow files a folder of `datasets` has."""
    for path in files:
        yield path
        if path.suffix == ".arrow":
            for name in DATASETS_FILES:
                folder = path.parent.parent if name.startswith("../") else path.parent
                if (extra := folder / Path(name).name).is_file():
                    yield extra
