"""Atomic writes of files and folders: write to a temporary name, fsync, rename.

Names that begin with `.tmp-` are leftovers of a killed process; `.old-X` is the X that was about to
be replaced. `recover` cleans up both.
"""

import errno
import json
import os
import re
import shutil
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import UserError

Stage = Callable[[str], None]
MAX_NAME_BYTES = 200  # bytes; file systems take 255, and -2 or .tmp- may be added
MAX_TEXT_BYTES = 256 * 2**20  # bytes of a JSON, TOML or metrics file
MAX_TOML_BYTES = 16 * 2**20
MAX_TOML_DEPTH = 100  # of tables and lists: code that follows them is recursive
# A key of more parts: tomllib takes time with the third power of their number.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")

_ADVICE = {
    errno.ENOSPC: "free some space or choose another disk",
    errno.EDQUOT: "free some space or choose another disk",
    errno.EFBIG: "raise the limit on file sizes or choose another disk",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that you may write to",
    errno.ELOOP: "delete the link, or use a copy of the folder",
    errno.EMLINK: "use a copy of the folder",
    errno.EISDIR: "delete it, or choose another folder",
    errno.EINVAL: "delete it, or choose another folder",
}


def user_cache_folder() -> Path:
    """The cache folder of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwise"


def ignore_stage(stage: str) -> None:
    """The default stage callback: do nothing."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError of a write into a UserError with advice."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk or choose another folder")
        raise UserError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


def check_name(name: str) -> str:
    r"""Check the name of a new folder; raises ValueError for one that would leave its parent folder.

    >>> check_name("../elsewhere")
    Traceback (most recent call last):
    ValueError: a folder's name cannot hold / or \; choose letters, digits, - and _
    """
    advice = "choose letters, digits, - and _"
    if "/" in name or "\\" in name:
        raise ValueError(f"a folder's name cannot hold / or \\; {advice}")
    if name.startswith("."):  # . and .. are other folders; .tmp- and .old- are reserved
        raise ValueError(f"a folder's name cannot begin with a dot; {advice}")
    if not name.isprintable():
        raise ValueError(f"a folder's name cannot hold control characters; {advice}")
    if len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
        raise ValueError(f"a folder's name has at most {MAX_NAME_BYTES} bytes; choose a shorter one")
    return name


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor; a FIFO, a device or a folder raises OSError.

    For writing, links are refused too, symbolic and hard ones: what is written would change a file somewhere else.
    """
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if writes and path.is_symlink():  # os.open would report too many levels of links
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    # O_NONBLOCK: opening a FIFO must not wait for its other end
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if writes else 0), 0o666)
    facts = os.fstat(handle)
    if stat.S_ISREG(facts.st_mode) and not (writes and facts.st_nlink > 1):
        return handle
    os.close(handle)
    if stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EMLINK, "it is a hard link to another file", str(path))
    if stat.S_ISDIR(facts.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def apply_umask(path: Path) -> None:
    """Give a file the permissions of any new file, where a library wrote it for its owner alone. The mode is that of
    an empty file beside it: to read the umask of a process is to change it, also for other threads."""
    probe = path.with_name(f".tmp-{path.name}-mode")
    handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        path.chmod(stat.S_IMODE(os.fstat(handle).st_mode))
    finally:
        os.close(handle)
        probe.unlink()


def read_bytes(path: Path, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Read a regular file of at most `limit` bytes; everything else is an OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit:,} bytes", str(path))
    return content


def read_json(path: Path) -> Any:
    """Parse an untrusted JSON file; raises only OSError and ValueError."""
    return parse_json(read_bytes(path).decode("utf-8"))


def parse_json(text: str) -> Any:
    """`json.loads`, but too deep nesting is a ValueError, like every other error."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Parse an untrusted TOML file; raises only OSError and ValueError."""
    return parse_toml(read_bytes(path, MAX_TOML_BYTES).decode("utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """`tomllib.loads`, but too deep nesting is a ValueError, like every other error."""
    try:
        if _LONG_KEY.search(text):
            raise RecursionError
        tables = tomllib.loads(text)
        _check_depth(tables)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return tables


def _check_depth(tables: dict[str, Any]) -> None:
    """Raise RecursionError for tables and lists within more than MAX_TOML_DEPTH others."""
    level: list[Any] = [tables]
    for _ in range(MAX_TOML_DEPTH):
        inner = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
        level = [item for item in inner if isinstance(item, dict | list)]
        if not level:
            return
    raise RecursionError


def sync(path: Path) -> None:
    """fsync a file or a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(path: Path, content: str | bytes) -> Path:
    """Write or replace a file atomically; its folder is created if it is missing."""
    temporary = path.with_name(f".tmp-{path.name}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.unlink(missing_ok=True)  # left by a killed process, or a malicious link
            with os.fdopen(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    return path


@contextmanager
def atomic_folder(target: Path, stage: Stage = ignore_stage) -> Iterator[Path]:
    """Yield a temporary folder to fill; on exit it atomically replaces `target`."""
    temporary, old = target.with_name(f".tmp-{target.name}"), target.with_name(f".old-{target.name}")
    with writing(target):
        remove(temporary)
        try:
            temporary.mkdir(parents=True)
            yield temporary
            stage("fsync")
            for file in temporary.iterdir():
                sync(file)
            sync(temporary)
            stage("rename")
            if target.exists():
                os.rename(target, old)
                stage("replace")
            os.rename(temporary, target)
            sync(target.parent)
            remove(old)
        finally:
            remove(temporary)


def discard(folder: Path) -> None:
    """Delete a folder atomically: rename it first."""
    temporary = folder.with_name(f".tmp-{folder.name}")
    remove(temporary)
    os.rename(folder, temporary)
    remove(temporary)


def recover(folder: Path) -> None:
    """Clean up after a killed writer; unfinished replacements are undone."""
    for old in folder.glob(".old-*"):
        target = old.with_name(old.name.removeprefix(".old-"))
        if target.exists():
            remove(old)
        else:
            os.rename(old, target)
    for temporary in folder.glob(".tmp-*"):
        remove(temporary)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
