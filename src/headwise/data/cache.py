"""Cache folders: built in a temporary folder, renamed when complete, verified whenever they are opened."""

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

Content = TypeVar("Content")


def load_or_build(folder: Path, build: Callable[[Path], None], load: Callable[[Path], Content]) -> Content:
    """Load a cache folder, and build it first if it is missing or damaged."""
    try:
        if folder.exists():
            try:
                return load(folder)
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("the cache %s is damaged (%s) and is built again", folder, error)
                shutil.rmtree(folder)
        _build_atomically(folder, build)
        return load(folder)
    except OSError as error:
        raise UserError(
            f"{folder.parent}: the cache cannot be written ({error.strerror}); "
            "make room there or name another folder in data.cache"
        ) from None


def _build_atomically(folder: Path, build: Callable[[Path], None]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        temporary.chmod(0o755)  # a cache may be shared between users
        build(temporary)
        temporary.rename(folder)
    except OSError:
        if not folder.exists():  # otherwise another process has written the same in the meantime
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def resolve_cache_root(setting: str) -> Path:
    """The folder of all caches: `data.cache`, or else the user's cache folder."""
    if setting:
        return Path(setting).expanduser()
    return user_cache_folder()


def hash_files(folder: Path, *names: str) -> dict[str, str]:
    """SHA-256 of each of these files."""
    return {name: _hash_file(folder / name) for name in names}


def verify_files(folder: Path, expected: Mapping[str, str]) -> None:
    """Compare files with their SHA-256; raise ValueError if any has changed."""
    for name, digest in expected.items():
        if _hash_file(folder / name) != digest:
            raise ValueError(f"{name} has changed")


def map_array(path: Path, dtype: str) -> np.ndarray:
    """Memory-map a file as an array."""
    # An empty file cannot be mapped; a plain view of the mapped array is faster to index.
    return np.asarray(np.memmap(path, dtype, mode="r")) if path.stat().st_size else np.empty(0, dtype)


def _hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
