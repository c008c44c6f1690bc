"""Files and folders that are whole or absent: written aside, synced, renamed.

Names in a folder of ours that begin with `.tmp-` are rubbish of a killed process; `.old-X` is
the X that was about to be replaced. `recover` clears both.
"""

import errno
import json
import os
import shutil
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import UserError

Stage = Callable[[str], None]
LONGEST_NAME = 200  # bytes; file systems take 255, and -2 or .tmp- may be added
LARGEST_TEXT = 256 * 2**20  # bytes of a JSON, TOML or metrics file

_ADVICE = {
    errno.ENOSPC: "free some space or choose another disk",
    errno.EDQUOT: "free some space or choose another disk",
    errno.EFBIG: "raise the limit on file sizes or choose another disk",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that you may write to",
    errno.ELOOP: "delete the link, or use a copy of the folder",
    errno.EMLINK: "use a copy of the folder",
    errno.EINVAL: "delete it, or choose another folder",
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


def check_name(name: str) -> str:
    r"""The name, where it can be that of one new folder; raises ValueError where it would leave the folder it is in.

    >>> check_name("../elsewhere")
    Traceback (most recent call last):
    ValueError: a folder's name cannot hold / or \; choose letters, digits, - and _
    """
    advice = "choose letters, digits, - and _"
    if "/" in name or "\\" in name:
        raise ValueError(f"a folder's name cannot hold / or \\; {advice}")
    if name.startswith("."):  # . and .. are other folders, .tmp- and .old- are ours
        raise ValueError(f"a folder's name cannot begin with a dot; {advice}")
    if not name.isprintable():
        raise ValueError(f"a folder's name cannot hold control characters; {advice}")
    if len(name.encode(errors="surrogatepass")) > LONGEST_NAME:
        raise ValueError(f"a folder's name has at most {LONGEST_NAME} bytes; choose a shorter one")
    return name


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor; a FIFO, a device or a folder of that name is an OSError.

    For writing, links are refused too, symbolic and hard ones: what is written would change a file somewhere else.
    """
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if writes and path.is_symlink():  # os.open would speak of too many levels of links
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    # O_NONBLOCK: opening a FIFO must not wait for its other end
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if writes else 0), 0o666)
    facts = os.fstat(handle)
    if stat.S_ISREG(facts.st_mode) and not (writes and facts.st_nlink > 1):
        return handle
    os.close(handle)
    if stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EMLINK, "it is a hard link to another file", str(path))
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_bytes(path: Path, limit: int = LARGEST_TEXT) -> bytes:
    """Read a regular file of at most `limit` bytes; everything else is an OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit:,} bytes", str(path))
    return content


def read_json(path: Path) -> Any:
    """Parse a JSON file that may come from anybody; raises only OSError and ValueError."""
    return parse_json(read_bytes(path).decode("utf-8"))


def parse_json(text: str) -> Any:
    """`json.loads`, where nesting that is too deep is a ValueError like every other fault."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file that may come from anybody; raises only OSError and ValueError."""
    return parse_toml(read_bytes(path).decode("utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """`tomllib.loads`, where nesting that is too deep is a ValueError like every other fault."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


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
            aside.unlink(missing_ok=True)  # of a killed process, or a link that somebody planted
            with os.fdopen(open_regular(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
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
