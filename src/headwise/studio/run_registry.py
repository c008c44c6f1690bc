"""The runs and model folders that the studio may open. Requests use their names, never file paths."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import UserError, nearest
from headwise.runs import Run, find_runs
from headwise.tasks.tables import TASKS, task_config

MAX_KIND_LENGTH = 100  # characters


@dataclass(frozen=True)
class RunFolder:
    """A run, or a model folder of another library."""

    name: str
    path: Path

    @property
    def run(self) -> Run | None:
        return Run(self.path) if (self.path / "config.toml").is_file() else None

    def to_dict(self) -> dict[str, Any]:
        """Its entry in the list of runs."""
        if self.run is None:
            input_kind = "images" if (self.path / "preprocessor_config.json").is_file() else "texts"
            summary = {"name": self.name, "kind": "folder", "task": "", "model": "", "ready": True}
            return {**summary, **describe_task(""), "input": input_kind}
        try:
            config = self.run.config
            task, model = (get_kind(config.get(key, "")) for key in ("task", "model"))
            summary = {"name": self.name, "kind": "run", "task": task, "model": model, "ready": bool(self.run.steps())}
            return {**summary, **describe_task(task)}
        except UserError as error:
            return {"name": self.name, "kind": "run", "task": "", "model": "", "ready": False, "problem": str(error)}


def describe_task(task: str) -> dict[str, Any]:
    """A task's declaration for the pages: what it reads, what it generates, and whether it has targets. The task of a
    Hugging Face folder is not known before it is loaded, so nothing is excluded."""
    if task not in TASKS:
        return {"input": "texts", "output": "" if task else "unknown", "transduces": not task}
    config = task_config(task)(kind=task)
    return {"input": config.reads, "output": config.writes, "transduces": config.transduces}


def get_kind(part: Any) -> str:
    """The kind of a config part, which is written as a table or as the kind alone."""
    return str(part.get("kind", "") if isinstance(part, Mapping) else part)[:MAX_KIND_LENGTH]


def decode_name(name: str) -> str:
    """A file name as valid UTF-8 text, as JSON needs it."""
    return os.fsencode(name).decode("utf-8", "replace")


class RunRegistry:
    """Maps names to folders. Folders of runs are searched again at each request, since training may add runs."""

    def __init__(self, paths: Sequence[Path], data_root: str | Path = ""):
        self.paths = tuple(paths)
        self.data_root = (
            data_root  # the folder of the runs' data, if they are neither beside the runs nor where they were
        )

    def items(self) -> dict[str, RunFolder]:
        """All folders by name. If two have the same name, the second gets its parent's name as a prefix."""
        folders: dict[str, RunFolder] = {}
        for path in self._folders():
            name = decode_name(path.name)
            name = name if name not in folders else f"{decode_name(path.parent.name)}-{name}"
            folders.setdefault(name, RunFolder(name, path))
        return folders

    def __getitem__(self, name: str) -> RunFolder:
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
                yield from (run.path.resolve() for run in find_runs(path))
