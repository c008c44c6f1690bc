"""Plugins: parts from a file given with `--with`, or from a package with the entry point `headwise.parts`.

Such a file adds its configs to the tables (`PARTS.add`, `SCORE_MODS.add`, ...); nothing of Headwise needs to change.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from zlib import crc32

from headwise.errors import UserError


def add_parts(files: Iterable[str | Path] = ()) -> None:
    """Import the user's files and every installed extension."""
    for entry in entry_points(group="headwise.parts"):
        entry.load()
    for file in files:
        path = Path(file)
        if not path.is_file():
            raise UserError(f"--with {path}: there is no such file")
        name = f"headwise_user_{path.stem}_{crc32(str(path.resolve()).encode()):08x}"  # two folders, two modules
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UserError(f"--with {path}: is not a Python file; its name must end in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise UserError(f"--with {path}: cannot be imported: {type(error).__name__}: {error}") from error
