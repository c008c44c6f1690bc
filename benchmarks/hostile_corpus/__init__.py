"""Malicious files and folders, generated."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

Commands = list[list[str]]
FAMILIES = ("runs", "weights", "folders", "data", "images", "archives", "experiments", "records", "science")


@dataclass
class Sandbox:
    """The folders of a case: `work`, in which its commands run, and `outside`, which they must leave alone."""

    folder: Path
    base: Path  # valid runs, folders and data to start from; do not change them
    before: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work, self.outside = self.folder / "work", self.folder / "outside"
        self.canary = self.folder / "canary"
        self.work.mkdir(parents=True)
        self.outside.mkdir()
        (self.outside / "victim").write_text("precious\n")
        (self.outside / "victim.json").write_text("{}\n")

    def copy(self, name: str) -> Path:
        """A copy of a run, a folder or a file of the base, in `work`."""
        source, target = self.base / name, self.work / name
        return Path(shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target))

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return path

    def remember(self) -> None:
        """Remember what is outside, and the names beside `work`."""
        self.before = self._describe()

    def list_changes(self) -> list[str]:
        now = self._describe()
        return sorted(name for name in self.before.keys() | now.keys() if self.before.get(name) != now.get(name))

    def _describe(self) -> dict[str, str]:
        own = {"out", "err", "events", "cache", "canary", "work"}
        names = {path.name: "" for path in self.folder.iterdir() if path.name not in own}
        for parent, _, files in os.walk(self.outside):
            for name in files:
                path = Path(parent, name)
                names[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "special"
        return names


@dataclass(frozen=True)
class Case:
    """A malicious file or folder. `make` writes it and returns the commands that read it; where `refused`, each of them
    must end with status 2."""

    family: str
    name: str
    make: Callable[[Sandbox], Commands]
    refused: bool = True


def list_cases() -> Iterator[Case]:
    for family in FAMILIES:
        for name, make, refused in import_module(f"hostile_corpus.{family}").list_cases():
            yield Case(family, name, make, refused)
