"""Files and folders that are whole or absent: written aside, synced, renamed.

Names in a folder of ours that begin with `.tmp-` are rubbish of a killed process; `.old-X` is
the X that was about to be replaced. `recover` clears both.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headwise.errors import UserError

Stage = Callable[[str], None]

_ADVICE = {
    errno.ENOSPC: "free some space or choose another disk",
    errno.EDQUOT: "free some space or choose another disk",
    errno.EFBIG: "raise the limit on file sizes or choose another disk",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that you may write to",
}


def user_cache() -> Path:
    """Where this user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwise"


def unheard(stage: str) -> None:
    """The stage callback of those who do not listen."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system says against a write, as one sentence for the user."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk or choose another folder")
        raise UserError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, or replace it, atomically; its folder is made where it is missing."""
    aside = path.with_name(f".tmp-{path.name}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_bytes(content.encode() if isinstance(content, str) else content)
            sync(aside)
            os.replace(aside, path)
            sync(path.parent)
        finally:
            aside.unlink(missing_ok=True)
    return path


@contextmanager
def appearing(target: Path, stage: Stage = unheard) -> Iterator[Path]:
    """A folder to fill; afterwards it stands as `target`, whole, in place of an older one."""
    aside, old = target.with_name(f".tmp-{target.name}"), target.with_name(f".old-{target.name}")
    with writing(target):
        remove(aside)
        try:
            aside.mkdir(parents=True)
            yield aside
            stage("fsync")
            for file in aside.iterdir():
                sync(file)
            sync(aside)
            stage("rename")
            if target.exists():
                os.rename(target, old)
                stage("replace")
            os.rename(aside, target)
            sync(target.parent)
            remove(old)
        finally:
            remove(aside)


def discard(folder: Path) -> None:
    """Delete a folder so that nobody ever sees half of it."""
    aside = folder.with_name(f".tmp-{folder.name}")
    remove(aside)
    os.rename(folder, aside)
    remove(aside)


def recover(folder: Path) -> None:
    """Clear what a killed writer left behind; its unfinished replacements are undone."""
    for old in folder.glob(".old-*"):
        target = old.with_name(old.name.removeprefix(".old-"))
        if target.exists():
            remove(old)
        else:
            os.rename(old, target)
    for aside in folder.glob(".tmp-*"):
        remove(aside)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
