"""Locate the data of a run that was moved or is used from another folder, and notice files that have changed.

Paths in config.toml stay as they were written. They are tried, in this order, in the folder that the user names, beside
the run (its folder `data`, the run folder, the folder of runs), in the folder in which training was started, and in the
current folder. In each of them a path is tried as it was written; without what leads out of the folder (`/`, `..`), as
`headwise runs archive --data` stores it; and by its last name. A corpus by name stays a name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from glob import iglob
from pathlib import Path

from headwise.data.cache import resolve_cache_root
from headwise.data.config import DataConfig
from headwise.data.digests import digest_file, load_digests
from headwise.data.files import is_pattern
from headwise.errors import UserError
from headwise.runs.data_record import DataRecord, FileRecord

log = logging.getLogger(__name__)

PARTS = ("train", "valid", "test")
Form = Callable[[str], str]  # how a path is looked up in a folder


@dataclass(frozen=True)
class Location:
    """A data config whose paths were looked up in the folder `base`."""

    data: DataConfig
    base: Path
    form: Form

    def resolve(self, path: str) -> Path:
        """Where a file of the run's data.json is now."""
        return self.base / self.form(path)

    def exists(self) -> bool:
        """Whether there is something at each path."""
        if self.data.name:
            return Path(self.data.root).is_dir()
        return all(_exists(Path(self.data.root) / Path(name).expanduser()) for name in _list_names(self.data))


def locate_data(data: DataConfig, run: Path, record: DataRecord, folder: str | Path = "") -> Location:
    """Find the data of a run; `folder` is the one that the user names. Raises if they are nowhere.

    Of several places, the first whose files have the recorded sizes is taken, or else the first.
    """
    root = Path(data.root).expanduser()
    if data.name and (not data.root or root.is_absolute()):  # a name, such as that of a package
        return Location(data, Path(), _keep)
    candidates = list(_list_candidates(data, Path(os.path.abspath(run)), record, folder))
    found = [location for location in candidates if location.exists()]
    if not found:
        folders = ", ".join(dict.fromkeys(str(location.base.absolute()) for location in candidates))
        what = data.root if data.name else ", ".join(dict.fromkeys(_list_names(data)))
        raise UserError(
            f"{run}: its data ({what}) are not in any of these folders: {folders}; put them beside the run, or name "
            "the folder that has them (--data-root FOLDER)"
        )
    return next((location for location in found if not _find_resized(location, record)), found[0])


def warn_of_changes(location: Location, record: DataRecord) -> None:
    """Log a warning if data files changed since training: a cheap check by size and time; a file with another time
    but the same size is compared by its digest."""
    if changes := find_changes(location, record, full=False):
        log.warning("%s; scores may not be comparable with those of the training", _join(changes))


def check_unchanged(location: Location, record: DataRecord) -> None:
    """Raise if data files differ from those of the training, by their digests."""
    _refuse(find_changes(location, record, full=True))


def check_files(location: Location, record: DataRecord, files: tuple[Path, ...]) -> None:
    """Raise if `files`, those that are read now, include one that was not read by the training."""
    if record.files and not location.data.name:
        recorded = {location.resolve(file.path).absolute() for file in record.files}
        _refuse([f"{path} was added" for path in files if path.absolute() not in recorded])


def _refuse(changes: list[str]) -> None:
    if changes:
        raise UserError(
            f"{_join(changes)} since this run was trained; restore the data, or resume with --changed-data to train on "
            "them as they are now"
        )


def find_changes(location: Location, record: DataRecord, full: bool) -> list[str]:
    """Say of each data file that differs from its record in what way; `full` compares all digests."""
    cache = resolve_cache_root(location.data.cache)
    changes: list[str] = []
    for file in record.files:
        path = location.resolve(file.path)
        try:
            facts = path.stat()
        except OSError:
            if not location.data.name:  # named data may be elsewhere on this machine
                changes.append(f"{path} is missing")
            continue
        if facts.st_size != file.bytes:
            changes.append(f"{path} has changed ({file.bytes:,} bytes then, {facts.st_size:,} now)")
        elif full or facts.st_mtime_ns != file.modified:
            digest = digest_file(path) if full else load_digests([path], cache)[0]
            if digest != file.sha256:
                changes.append(f"{path} has changed (the same size, another SHA-256)")
    return changes


def make_portable(path: str) -> str:
    """A path without what leads out of a folder: the root, the home folder and `..`.

    >>> make_portable("../data/pairs.tsv"), make_portable("/home/me/pairs.tsv")
    ('data/pairs.tsv', 'home/me/pairs.tsv')
    """
    full = Path(path).expanduser()
    return str(Path(*(part for part in full.parts if part not in (full.anchor, ".."))))


def list_data_files(data: DataConfig, run: Path, record: DataRecord, folder: str | Path = "") -> dict[str, Path]:
    """The data files of a run by the names under which an archive stores them; empty for a corpus by name."""
    if data.name:
        return {}
    location = locate_data(data, run, record, folder)
    check_unchanged(location, record)
    files: dict[str, Path] = {}
    for file in record.files:
        if files.setdefault(make_portable(file.path), location.resolve(file.path)) != location.resolve(file.path):
            raise UserError(f"{file.path}: another data file would get the same name in an archive; copy it beside it")
    return files


def relative_to_base(location: Location, files: list[FileRecord]) -> list[FileRecord]:
    """The records of files that are read now, with paths relative to the folder in which they were found."""
    base = location.base

    def strip(path: str) -> str:
        inside = base != Path() and Path(path).is_relative_to(base)
        return str(Path(path).relative_to(base)) if inside else path

    return [FileRecord(strip(file.path), file.bytes, file.modified, file.sha256) for file in files]


def _list_candidates(data: DataConfig, run: Path, record: DataRecord, folder: str | Path) -> Iterator[Location]:
    if folder:
        yield from _look_up(data, Path(folder).expanduser(), written=False)
        return
    for base in (run / "data", run, run.parent):
        yield from _look_up(data, base, written=False)
    started = [Path(record.folder)] if record.folder else []
    started += [Path(os.path.normpath(run / record.from_run))] if record.from_run else []
    for base in started:
        if base.absolute() != Path.cwd():
            yield from _look_up(data, base, written=True)
    yield Location(data.replace(root=str(Path(data.root).expanduser())) if data.root else data, Path(), _keep)


def _look_up(data: DataConfig, base: Path, written: bool) -> Iterator[Location]:
    """The paths as they were written (absolute ones only with `written`), made portable, and by their last names."""
    root = Path(data.root).expanduser()
    names = [str(root / Path(name).expanduser()) for name in _list_names(data)]
    if written or not any(Path(name).is_absolute() for name in (*names, str(root))):
        yield Location(data.replace(root=str(base / root)), base, _keep)
    if data.name:
        return
    last = {Path(name).name for name in names}
    forms: list[Form] = [make_portable]
    if len(last) == len(set(names)) and not any(is_pattern(Path(name)) for name in names):
        forms.append(partial(_take_name, names))
    for form in forms:
        parts = {part: tuple(form(str(root / Path(name))) for name in getattr(data, part)) for part in PARTS}
        yield Location(data.replace(root=str(base), **parts), base, form)


def _list_names(data: DataConfig) -> list[str]:
    return [name for part in PARTS for name in getattr(data, part)]


def _keep(path: str) -> str:
    return path


def _take_name(names: list[str], path: str) -> str:
    """The last name of a path; of a file in a folder that the config names, the path from that folder on."""
    full = Path(path).expanduser()
    folder = next((Path(name) for name in names if full.is_relative_to(name)), full)
    return str(folder.name / full.relative_to(folder))


def _exists(path: Path) -> bool:
    """Whether there is data; a run that has the name of its data, as `headwise fit photos` leaves it, is none."""
    if (path / "config.toml").is_file() and (path / "info.json").is_file():
        return False
    return path.exists() or (is_pattern(path) and next(iglob(str(path), recursive=True), None) is not None)


def _find_resized(location: Location, record: DataRecord) -> bool:
    """Whether a recorded file is missing there or has another size."""
    try:
        return any(location.resolve(file.path).stat().st_size != file.bytes for file in record.files)
    except OSError:
        return True


def _join(changes: list[str]) -> str:
    more = f", and {len(changes) - 3:,} others" if len(changes) > 3 else ""
    return ", ".join(changes[:3]) + more
