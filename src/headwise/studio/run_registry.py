"""The runs and folders that the studio may open. Requests name them; no request names a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import UserError, nearest
from headwise.runs import Run, find
from headwise.tasks.tables import TASKS, task_config

LONGEST = 100  # characters of a kind


@dataclass(frozen=True)
class Item:
    """A run, or a folder of another library."""

    name: str
    path: Path

    @property
    def run(self) -> Run | None:
        return Run(self.path) if (self.path / "config.toml").is_file() else None

    def to_dict(self) -> dict[str, Any]:
        """What a list says of it."""
        if self.run is None:
            reads = "images" if (self.path / "preprocessor_config.json").is_file() else "texts"
            about = {"name": self.name, "kind": "folder", "task": "", "model": "", "ready": True}
            return {**about, **declared(""), "reads": reads}
        try:
            config = self.run.config
            task, model = (kind(config.get(key, "")) for key in ("task", "model"))
            told = {"name": self.name, "kind": "run", "task": task, "model": model, "ready": bool(self.run.steps())}
            return {**told, **declared(task)}
        except UserError as error:
            return {"name": self.name, "kind": "run", "task": "", "model": "", "ready": False, "problem": str(error)}


def declared(task: str) -> dict[str, Any]:
    """What pages need to know of a task: what it reads, what it writes, and whether it has targets to follow. Where the
    task of a folder is not known yet, all of it may be."""
    if task not in TASKS:
        return {"reads": "texts", "writes": "" if task else "unknown", "transduces": not task}
    config = task_config(task)(kind=task)
    return {"reads": config.reads, "writes": config.writes, "transduces": config.transduces}


def kind(part: Any) -> str:
    """What a part of an experiment is called, written as a table or as its kind alone."""
    return str(part.get("kind", "") if isinstance(part, Mapping) else part)[:LONGEST]


def readable(name: str) -> str:
    """A file name as text: bytes that are no UTF-8 cannot be sent to a page."""
    return os.fsencode(name).decode("utf-8", "replace")


class Shelf:
    """Names to folders. Folders that hold runs are looked through again at each request: training adds to them, and
    makes the first."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = tuple(paths)

    def items(self) -> dict[str, Item]:
        """By name; of two with the same name the second is called by its folder, too."""
        found: dict[str, Item] = {}
        for path in self._folders():
            name = readable(path.name)
            name = name if name not in found else f"{readable(path.parent.name)}-{name}"
            found.setdefault(name, Item(name, path))
        return found

    def __getitem__(self, name: str) -> Item:
        items = self.items()
        if not items:
            raise UserError("there is no run here yet; train one with `headwise demo`")
        if name not in items:
            raise UserError(f"there is no run '{name}' here; {nearest(name, items)}")
        return items[name]

    def _folders(self) -> Iterator[Path]:
        for path in self.paths:
            if (path / "config.toml").is_file() or (path / "config.json").is_file():
                yield path.resolve()
            elif path.is_dir():
                yield from (run.path.resolve() for run in find(path))
