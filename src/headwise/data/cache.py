"""Folders of what can be made again: built aside, renamed when whole, checked whenever they are opened."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

import numpy as np

from headwise.errors import UserError
from headwise.utils.files import user_cache_folder

log = logging.getLogger(__name__)

Content = TypeVar("Kept")


def load_or_build(folder: Path, build: Callable[[Path], None], open: Callable[[Path], Content]) -> Content:
    """What `open` finds in the folder, built there first if it is missing or damaged."""
    try:
        if folder.exists():
            try:
                return open(folder)
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("the cache %s is damaged (%s) and is built again", folder, error)
                shutil.rmtree(folder)
        _build_aside(folder, build)
        return open(folder)
    except OSError as error:
        raise UserError(
            f"{folder.parent}: the cache cannot be written ({error.strerror}); "
            "make room there or name another folder in data.cache"
        ) from None


def _build_aside(folder: Path, build: Callable[[Path], None]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        aside.chmod(0o755)  # a cache may be shared between users
        build(aside)
        aside.rename(folder)
    except OSError:
        if not folder.exists():  # otherwise another process was quicker and wrote the same
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def resolve_cache_root(setting: str) -> Path:
    """The folder for caches: the setting, or the user's cache folder."""
    if setting:
        return Path(setting).expanduser()
    return user_cache_folder()


def hash_files(folder: Path, *names: str) -> dict[str, str]:
    """SHA-256 of each of these files."""
    return {name: _hash_file(folder / name) for name in names}


def verify_files(folder: Path, expected: Mapping[str, str]) -> None:
    """ValueError if any byte of these files has changed."""
    for name, digest in expected.items():
        if _hash_file(folder / name) != digest:
            raise ValueError(f"{name} has changed")


def map_array(path: Path, dtype: str) -> np.ndarray:
    """An array in a file, read as it is needed."""
    # An empty file cannot be mapped; a plain view of the mapped array is quicker to index.
    return np.asarray(np.memmap(path, dtype, mode="r")) if path.stat().st_size else np.empty(0, dtype)


def _hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
