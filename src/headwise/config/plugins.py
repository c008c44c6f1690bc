"""Parts of the user's own: from a file (`--with FILE`, `headwise.use_parts`), from a package with the entry point
`headwise.parts`, or from the copy that a run keeps of its parts file.

A parts file is one Python file that adds its configs to the tables (`PARTS.add`, `SCORE_MODS.add`, ...). Its module is
named by its SHA-256, so that the same contents are imported once, wherever they are. The code of a run is executed only
if it is trusted: with `--trust` (`set_trust`), or if the user has imported a file of the same contents.
"""

from __future__ import annotations

import ast
import hashlib
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from headwise.config.base import Config, Table
from headwise.errors import UserError
from headwise.utils.files import read_bytes

log = logging.getLogger(__name__)

PREFIX = "headwise_user_"  # of the names of imported modules
GROUP = "headwise.parts"  # of entry points
MAX_BYTES = 4 * 2**20  # of a parts file
_trusts_runs = False  # whether the parts files of runs are executed; set by `--trust`


@dataclass(frozen=True)
class PartsFile:
    """The contents of a parts file, as they were imported."""

    path: Path
    source: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source).hexdigest()

    @property
    def module(self) -> str:
        """The name of its module in `sys.modules`."""
        return f"{PREFIX}{self.sha256[:32]}"


def use_parts(*files: str | Path) -> None:
    """Import parts files: their mixers, norms, positions, tasks, models, ... can then be named by `kind`. A file that
    has changed since it was imported replaces its earlier parts."""
    for file in files:
        parts = read_parts_file(file)
        for earlier in list_parts_files():
            if earlier.path == parts.path and earlier.source != parts.source:
                forget_parts(earlier)
        import_parts(parts, str(file))


def read_parts_file(file: str | Path) -> PartsFile:
    """Read a parts file without executing it; one that imports files beside it is refused."""
    path, where = Path(file), str(file)
    if path.suffix != ".py":
        raise UserError(f"{where}: is not a Python file; its name must end in .py")
    try:
        source = read_bytes(path, MAX_BYTES)
    except FileNotFoundError:
        raise UserError(f"{where}: there is no such file") from None
    except OSError as error:
        raise UserError(f"{where}: cannot be read ({error.strerror}); name a Python file") from None
    check_imports(source, path, where)
    return PartsFile(path.resolve(), source)


def check_imports(source: bytes, path: Path, where: str) -> None:
    """Refuse a file that imports its neighbours: a run keeps one file, which must work alone."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise UserError(f"{where}: is not valid Python{line}: {reason}") from None
    for name in _list_imports(tree):
        beside = [path.parent / f"{name}.py", path.parent / name / "__init__.py"]
        if name.startswith(".") or (any(file.is_file() for file in beside) and not _is_installed(name, path.parent)):
            raise UserError(
                f"{where}: imports {name}, which is beside it, but a run keeps one file; put both into one, or install "
                f"them as a package with the entry point {GROUP}"
            )


def _list_imports(tree: ast.AST) -> Iterator[str]:
    """The first names of all imported modules; a relative import has its dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "") if node.level else (node.module or "").partition(".")[0]


def _is_installed(name: str, folder: Path) -> bool:
    """Whether a module of this name would be imported from somewhere else than `folder`."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and (spec.origin is None or folder.resolve() not in Path(spec.origin).resolve().parents)


def import_parts(parts: PartsFile, where: str) -> None:
    """Execute a parts file, unless the same contents were executed before. If it fails, nothing of it is kept."""
    if parts.module in sys.modules:
        return
    module = ModuleType(parts.module)
    module.__file__ = str(parts.path)
    setattr(module, "__parts_file__", parts)  # noqa: B010  (mypy: a module has no such attribute)
    sys.modules[parts.module] = module
    try:
        exec(compile(parts.source, str(parts.path), "exec"), module.__dict__)
    except BaseException as error:
        forget_parts(parts)
        if isinstance(error, UserError):
            raise UserError(f"{where}: {error}") from error
        if isinstance(error, Exception):
            raise UserError(f"{where}: cannot be imported: {describe_error(error, str(parts.path))}") from error
        raise


def describe_error(error: BaseException, file: str) -> str:
    """An exception in one line, with the line of `file` where it came from."""
    text = (str(error).strip().splitlines() or [""])[0]
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    place = f" ({Path(file).name}, line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def list_parts_files() -> list[PartsFile]:
    """The parts files that this process has imported."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(PREFIX)]
    return [module.__parts_file__ for module in modules if hasattr(module, "__parts_file__")]


def list_own_sources() -> dict[str, bytes]:
    """The contents of the imported parts files, by SHA-256."""
    return {parts.sha256: parts.source for parts in list_parts_files()}


def list_configs(parts: PartsFile) -> list[tuple[Table, type[Config]]]:
    """The configs that a parts file has added, with their tables."""
    return [
        (table, config)
        for table in sorted(Table.tables, key=lambda table: table.what)
        for config in table.loaded.values()
        if config.__module__ == parts.module
    ]


def forget_parts(parts: PartsFile) -> None:
    """Remove the configs of a parts file from the tables."""
    for table, config in list_configs(parts):
        table.loaded = {kind: cls for kind, cls in table.loaded.items() if cls is not config}
    sys.modules.pop(parts.module, None)


def load_entry_points(loaded: set[str] = set()) -> None:  # noqa: B006  (what was loaded, for the whole process)
    """Import the parts of installed packages, once. Tables call it before they refuse a kind."""
    if GROUP in loaded:
        return
    loaded.add(GROUP)  # before the imports, which may look up kinds
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            text = (str(error).splitlines() or [""])[0]
            message = f"cannot be imported: {type(error).__name__}: {text}; update or uninstall its package"
            raise UserError(f"entry point {GROUP} '{entry.name}': {message}") from error


# Copies in runs


def collect_parts(config: Any) -> dict[str, bytes]:
    """The parts files that a config depends on, as names and contents: a run keeps a copy of them."""
    modules = {type(value).__module__ for value in _walk(config)}
    files: dict[str, bytes] = {}
    for parts in (parts for parts in list_parts_files() if parts.module in modules):
        name = parts.path.name if parts.path.name not in files else f"{parts.path.stem}-{parts.sha256[:8]}.py"
        files[name] = parts.source
    return files


def _walk(value: Any) -> Iterator[Config]:
    """All configs in a config."""
    if isinstance(value, Config):
        yield value
        value = [getattr(value, name) for name in type(value).model_fields]
    elif isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _walk(item)


def set_trust(trusted: bool) -> None:
    """Whether parts files that runs keep are executed without asking, in this process."""
    global _trusts_runs
    _trusts_runs = trusted


def use_kept_parts(files: Mapping[str, bytes], folder: Path, trust: bool = False) -> None:
    """Import the parts files that a run or a model folder keeps, if they are trusted. The user's own file of that name
    is used instead; without trust it must have the same contents."""
    imported = list_parts_files()
    known = {parts.source for parts in imported}
    own = {parts.path.name for parts in imported}
    foreign = {name: source for name, source in files.items() if source not in known}
    if foreign and not (trust or _trusts_runs):
        raise UserError(_ask_for_trust(sorted(foreign), own, folder))
    for name, source in foreign.items():
        if name in own:
            log.warning("%s: was trained with another version of %s; yours is used", folder, name)
        else:
            path = (folder / "parts" / name).resolve()
            import_parts(PartsFile(path, source), str(path))


def _ask_for_trust(names: Sequence[str], own: Iterable[str], folder: Path) -> str:
    copies = " ".join(str(folder / "parts" / name) for name in names)
    if changed := set(names).intersection(own):
        name = min(changed)
        return (
            f"{folder}: was trained with another version of {name} than yours; use its copy, --with {copies}, or add "
            "--trust to use yours"
        )
    return (
        f"{folder}: needs the code of its own parts, which is not executed unless you trust it; read {copies}, then "
        "add --trust (in Python trust=True), or name your own copy with --with"
    )


# Options of the command line, for all commands and for worker processes


def take_options(words: Sequence[str]) -> list[str]:
    """Apply `--with FILE` and `--trust` wherever they are among the words of a command; returns the other words."""
    rest: list[str] = []
    files: list[str] = []
    trusted, remaining = False, iter(words)
    for word in remaining:
        if word == "--":
            rest += [word, *remaining]
        elif word == "--trust":
            trusted = True
        elif word == "--with":
            files.append(next(remaining, ""))
        elif word.startswith("--with="):
            files.append(word.removeprefix("--with="))
        else:
            rest.append(word)
    if "" in files:
        raise UserError("--with: name a Python file with your own parts, as in --with my_parts.py")
    set_trust(trusted)
    use_parts(*files)
    return rest


def list_options() -> list[str]:
    """The words that give a worker process the parts and the trust of this one."""
    files = [word for parts in list_parts_files() for word in ("--with", str(parts.path))]
    return [*files, *(["--trust"] if _trusts_runs else [])]
