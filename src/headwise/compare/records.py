"""Recorded outcomes: the scores of finished runs in one JSON file, so that a table can be printed without its runs.

A file of records has the settings of each run beside its outcome. A record counts for a cell with the same settings,
whatever has changed in the table since: one that no longer fits is left out, and its cell is trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headwise.compare.cell import Cell, build_cells
from headwise.compare.config import Suite
from headwise.compare.values import Outcome
from headwise.config.base import merge
from headwise.errors import UserError
from headwise.runs.parts import read_parts
from headwise.utils.files import read_json, write

FORMAT = 1
NO_FILE = Path()
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Records:
    """The records of a file. Settings are stored as differences from those of the first one, `base`."""

    base: Mapping[str, Any] = field(default_factory=dict)
    entries: Mapping[str, Sequence[Entry]] = field(default_factory=dict)  # by the names of their runs

    @classmethod
    def read(cls, file: str | Path) -> Records:
        """The records of a file; none if it is missing, or its name is empty."""
        if not file:
            return cls()
        try:
            data = read_json(Path(file))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError) as error:
            raise UserError(f"{file}: cannot be read as records of runs ({error}); restore or delete it") from None
        try:
            if data["format"] != FORMAT:
                raise UserError(f"{file}: its format is {data['format']}, not {FORMAT}; delete it and measure again")
            entries: dict[str, list[Entry]] = {}
            for entry in data["runs"]:
                Outcome.from_json(entry["outcome"])
                entries.setdefault(str(entry["run"]), []).append(dict(entry))
            return cls(dict(data["experiment"]), entries)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{file}: these are no records of runs ({error!r}); restore or delete it") from None

    def find(self, cell: Cell) -> Outcome | None:
        """The recorded outcome of a cell with these settings."""
        for entry in self.entries.get(cell.name, ()):
            if entry["key"] == cell.key and cell.has_settings(self._read_settings(entry)):
                return replace(Outcome.from_json(entry["outcome"]), recorded=describe_measurement(entry["measured"]))
        return None

    def _read_settings(self, entry: Entry) -> dict[str, Any]:
        return merge(self.base, entry["set"], later=False)

    def add(self, cells: Iterable[Cell]) -> Records:
        """With the outcomes of finished runs, instead of earlier records with the same settings."""
        base, entries = self.base, {name: list(old) for name, old in self.entries.items()}
        for cell in cells:
            run, outcome = cell.find_run(), cell.load_outcome()
            if run is None or outcome is None or read_parts(run.path):  # code of one's own is not recorded
                continue
            settings = cell.shorten_start(cell.experiment).model_dump(mode="json")
            base = base or settings
            others = [old for old in entries.get(cell.name, ()) if not self._replaces(cell, old)]
            measured = {key: run.info[key] for key in ("created", "cpu", "versions") if key in run.info}
            entry = {"run": cell.name, "key": cell.key, "set": subtract(settings, base), "measured": measured}
            entries[cell.name] = [*others, {**entry, "outcome": replace(outcome, run=NO_FILE, items=NO_FILE).to_json()}]
        return Records(base, entries)

    def _replaces(self, cell: Cell, entry: Entry) -> bool:
        return entry["key"] == cell.key and cell.has_settings(self._read_settings(entry))

    def write(self, file: Path) -> None:
        """Write the file, one record a line."""
        lines = [json.dumps(entry) for name in sorted(self.entries) for entry in self.entries[name]]
        head = f'{{"format": {FORMAT}, "experiment": {json.dumps(self.base)},\n"runs": [\n'
        write(file, head + ",\n".join(lines) + "\n]}\n")


def add_records(suite: Suite, runs: str | Path, file: Path) -> None:
    """Add the outcomes of all finished runs of a suite to a file of records."""
    cells = (cell for config in suite.tables.values() for cell in build_cells(config, runs))
    Records.read(file).add(cells).write(file)


def describe_measurement(measured: Mapping[str, Any] = MappingProxyType({})) -> str:
    """The day, the CPU and the versions of a run.

    >>> describe_measurement({"created": "2026-11-18T20:00:00", "cpu": "A CPU, AVX2", "versions": {"torch": "2.13.0"}})
    '2026-11-18, A CPU, AVX2, torch 2.13.0'
    """
    versions = measured.get("versions", {})
    named = (f"{name} {versions[name]}" for name in ("headwise", "torch") if name in versions)
    return (
        ", ".join(filter(None, (str(measured.get("created", ""))[:10], measured.get("cpu", ""), *named))) or "unknown"
    )


def subtract(settings: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """What `merge(base, ...)` needs to give `settings`.

    >>> subtract({"seed": 2, "model": {"kind": "a", "width": 8}}, {"seed": 1, "model": {"kind": "a", "width": 4}})
    {'seed': 2, 'model': {'width': 8}}
    >>> subtract({"model": {"kind": "b", "width": 4}}, {"model": {"kind": "a", "width": 4}})
    {'model': {'kind': 'b', 'width': 4}}
    """
    changes: dict[str, Any] = {}
    for key, value in settings.items():
        old = base.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and value.get("kind") == old.get("kind"):
            if inner := subtract(value, old):
                changes[key] = inner
        elif key not in base or value != old:
            changes[key] = value
    return changes
