"""Copy, archive, unpack and remove run folders.

An archive is a zip of one run: `NAME/...` with the files that training writes, and `NAME/archive.json`, a manifest with
size and SHA-256 of each. It may come from anybody: `unpack` accepts only such names, regular files and bounded sizes,
and a run appears only after all files match the manifest.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from headwise.errors import UserError
from headwise.runs import data_record
from headwise.runs.data_record import read_record, write_record
from headwise.runs.manifest import NAME, parse_manifest, render_manifest
from headwise.runs.run import Run, RunExists
from headwise.utils.files import MAX_TEXT_BYTES, atomic_folder, check_name, discard, open_regular, writing

MANIFEST = "archive.json"
KNOWN = re.compile(
    r"(config\.toml|(info|data|tokenizer|items|outcome|manifest)\.json|metrics\.jsonl|best|last|README\.md"
    r"|(confusion|alignment)\.svg|parts/([\w-]+\.py|manifest\.json)"
    r"|checkpoints/step-\d{1,18}/((model|optimizer|ema|carried|data)\.safetensors|(state|manifest)\.json)"
    r"|tensorboard/events\.out\.tfevents\.[\w.-]+|data/.+)",
    re.ASCII,
)
LEFTOVER = re.compile(r"lock|\.(tmp|old)-.*|damaged-.*")
MAX_FILES = 1_000_000
MAX_RATIO = 100  # unpacked bytes for each byte of the archive, beyond MAX_SMALL
MAX_SMALL = 2**26  # bytes that any archive may unpack to
BLOCK = 2**20
METHODS = (ZIP_STORED, ZIP_DEFLATED)


def copy_run(run: Run, target: Path) -> Run:
    """Copy a run to a new folder, with all regular files but the lock and leftovers of killed processes."""
    _check_idle(run, "copied")
    _check_new(target)
    with atomic_folder(target) as temporary:
        for name in _list_files(run.path):
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(open_regular(run.path / name), "rb") as source, open(temporary / name, "xb") as copy:
                shutil.copyfileobj(source, copy, BLOCK)
    copied = Run.open(target)
    if (record := read_record(run)).folder:
        write_record(copied, Path(record.folder), record.files)  # the copy may be in another folder
    return copied


def archive_run(run: Run, file: Path, data: Mapping[str, Path] | None = None) -> list[str]:
    """Write a run to a new zip; `data` are files to store below its folder `data`. Returns the names of files that are
    left out, as training did not write them."""
    _check_idle(run, "archived")
    if file.suffix != ".zip":
        raise UserError(f"{file}: an archive is a zip; choose a name that ends in .zip")
    if file.exists():
        raise UserError(f"{file} exists already; choose another name, or delete it")
    names = list(_list_files(run.path))
    stored = {f"data/{name}": path for name, path in (data or {}).items()}
    files = {name: run.path / name for name in names if KNOWN.fullmatch(name) and name != NAME} | stored
    for name in files:
        if not _is_below(name):
            raise UserError(f"{name!r}: an archive has no names with control characters, \\ or :; rename the file")
    temporary = file.with_name(f".tmp-{file.name}")
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.unlink(missing_ok=True)
            with ZipFile(temporary, "x", allowZip64=True) as archive:
                _write_archive(archive, run, files)
            os.rename(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)
    return [name for name in names if not KNOWN.fullmatch(name)]


def unpack(file: Path, folder: Path) -> Run:
    """Unpack an archive as a new run in `folder`; nothing of it is trusted, and nothing is left behind if it is bad."""
    try:
        with os.fdopen(open_regular(file), "rb") as handle, ZipFile(handle) as archive:
            name, entries = _check_entries(file, archive.infolist(), os.fstat(handle.fileno()).st_size)
            target = folder / name
            _check_new(target)
            _check_space(file, folder, sum(entry.file_size for entry in entries.values()))
            manifest = parse_manifest(_read_small(archive, entries.pop(MANIFEST)))
            if manifest.keys() != entries.keys():
                raise _refuse(file, f"its files are not those of its {MANIFEST}")
            with atomic_folder(target) as temporary:
                for path, entry in entries.items():
                    if _extract(archive, entry, temporary / path) != manifest[path]:
                        raise _refuse(file, f"{path} differs from {MANIFEST} (size or SHA-256)")
                (temporary / "checkpoints").mkdir(exist_ok=True)
                Run(temporary).seal()
    except FileNotFoundError:
        raise UserError(f"{file}: there is no such file; name a zip that `headwise runs archive` wrote") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error})") from None
    except (BadZipFile, EOFError, NotImplementedError, ValueError, zlib.error) as error:
        if isinstance(error, UserError):
            raise
        raise _refuse(file, str(error) or "it is truncated") from None
    return Run.open(target)


def remove_run(run: Run, confirmed: bool) -> None:
    """Delete a run folder, if the user has confirmed it; raises if it is not a run or is being trained."""
    path = run.path
    if path.is_symlink() or not (path / "info.json").is_file() or not run.checkpoints.is_dir():
        raise UserError(f"{path} is not a run folder with info.json and checkpoints; delete it with other tools")
    _check_idle(run, "removed")
    if not confirmed:
        files = list(_list_files(path))
        size = sum((path / name).lstat().st_size for name in files)
        others = [name for name in files if not KNOWN.fullmatch(name)]
        also = f", also {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}" if others else ""
        raise UserError(f"{path}: {len(files)} files, {size / 1e6:,.1f} MB{also}; add --yes to delete them for good")
    with run.lock(), writing(path):
        discard(path.resolve())


def _list_files(folder: Path) -> Iterator[str]:
    """The regular files below a folder, without links, the lock and leftovers, in alphabetical order."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not LEFTOVER.fullmatch(name))
        for name in sorted(names):
            path = Path(parent, name)
            if stat.S_ISREG(path.lstat().st_mode) and not LEFTOVER.fullmatch(name):
                yield path.relative_to(folder).as_posix()


def _check_idle(run: Run, what: str) -> None:
    if run.busy:
        raise UserError(f"{run.path} is being trained and cannot be {what}; wait for it, or stop it")


def _check_new(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise RunExists(f"{target} exists already; choose another name, or remove it")


def _write_archive(archive: ZipFile, run: Run, files: Mapping[str, Path]) -> None:
    name = run.path.resolve().name
    described = {}
    for path, source in files.items():
        if path == data_record.NAME:  # without folders of this machine
            content = replace(read_record(run), folder="", from_run="").to_json().encode()
            archive.writestr(f"{name}/{path}", content, ZIP_DEFLATED)
            described[path] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            continue
        method = ZIP_STORED if path.endswith(".safetensors") else ZIP_DEFLATED
        info = ZipInfo(f"{name}/{path}")
        info.compress_type, info.external_attr = method, (stat.S_IFREG | 0o644) << 16
        digest, size = hashlib.sha256(), 0
        with os.fdopen(open_regular(source), "rb") as file, archive.open(info, "w", force_zip64=True) as entry:
            while block := file.read(BLOCK):
                entry.write(block)
                digest.update(block)
                size += len(block)
        described[path] = {"bytes": size, "sha256": digest.hexdigest()}
    archive.writestr(f"{name}/{MANIFEST}", render_manifest(described), ZIP_DEFLATED)


def _check_entries(file: Path, infos: list[ZipInfo], size: int) -> tuple[str, dict[str, ZipInfo]]:
    """The name of the run and its entries by path; raises for all that `archive_run` does not write."""
    if len(infos) > MAX_FILES:
        raise _refuse(file, f"it has more than {MAX_FILES:,} files")
    entries: dict[str, ZipInfo] = {}
    run_name = infos[0].filename.partition("/")[0] if infos else ""
    for info in infos:
        name, _, path = info.filename.partition("/")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if name != run_name or not path:
            raise _refuse(file, f"{info.filename!r} is not a file of one run")
        check_name(name)
        if not _is_below(path):
            raise _refuse(file, f"{info.filename!r} is a path that may leave the folder")
        if kind not in (0, stat.S_IFREG) or info.is_dir() or info.flag_bits & 1 or info.compress_type not in METHODS:
            raise _refuse(file, f"{info.filename!r} is a link, encrypted or no plain file")
        if path != MANIFEST and not KNOWN.fullmatch(path):
            raise _refuse(file, f"{info.filename!r} is no file of a run")
        if path in entries:
            raise _refuse(file, f"{info.filename!r} occurs twice")
        if info.file_size > MAX_TEXT_BYTES and not path.startswith(("data/", "checkpoints/", "tensorboard/")):
            raise _refuse(file, f"{info.filename!r} is larger than {MAX_TEXT_BYTES:,} bytes")
        entries[path] = info
    if MANIFEST not in entries or "config.toml" not in entries:
        raise _refuse(file, f"it has no {MANIFEST} and config.toml")
    if sum(info.file_size for info in infos) > MAX_SMALL + MAX_RATIO * size:
        raise _refuse(file, f"it unpacks to more than {MAX_RATIO} times its size")
    return run_name, entries


def _is_below(path: str) -> bool:
    """Whether a path stays below its folder on every system."""
    return path.isprintable() and not {"\\", ":"} & {*path} and not {"", ".", ".."} & {*path.split("/")}


def _check_space(file: Path, folder: Path, needed: int) -> None:
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    if needed > shutil.disk_usage(existing).free:
        raise UserError(f"{file}: unpacks to {needed / 1e9:,.1f} GB, which {existing} has no room for; free some space")


def _extract(archive: ZipFile, entry: ZipInfo, target: Path) -> dict[str, object]:
    """Write an entry to a new file; returns size and SHA-256. More bytes than the entry declares are not read."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with archive.open(entry) as source, writing(target), open(target, "xb") as file:
        while (block := source.read(BLOCK)) and size <= entry.file_size:
            file.write(block)
            digest.update(block)
            size += len(block)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _read_small(archive: ZipFile, entry: ZipInfo) -> bytes:
    with archive.open(entry) as source:
        return source.read(MAX_TEXT_BYTES)


def _refuse(file: Path, what: str) -> UserError:
    return UserError(f"{file}: is not an archive of a run: {what}; get another copy of it")
