"""`data.json` of a run: where its data were, and size, modification time and SHA-256 of each data file.

Paths in config.toml stay as they were written. `folder` is what relative ones start from, and `from_run` is the same
folder relative to the run, so that a project that is moved with its runs and data is found again. The file may come
from anybody: it is read with limits and types, and a path in it is only ever read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.runs.run import Run, read_object
from headwise.utils.files import write

NAME = "data.json"
TYPES = {"folder": str, "from_run": str, "files": list}


@dataclass(frozen=True)
class FileRecord:
    """A data file as it was read."""

    path: str  # relative to the record's folder, or absolute
    bytes: int
    modified: int  # nanoseconds since 1970
    sha256: str


@dataclass(frozen=True)
class DataRecord:
    """The folder that relative paths start from, and the files that were read."""

    folder: str = ""
    from_run: str = ""  # the same folder, relative to the run
    files: tuple[FileRecord, ...] = ()

    def to_json(self) -> str:
        lines = ",\n".join(f"  {json.dumps(asdict(file))}" for file in self.files)
        head = f'"folder": {json.dumps(self.folder)},\n "from_run": {json.dumps(self.from_run)}'
        return f'{{{head},\n "files": [\n{lines}\n ]}}\n'


def write_record(run: Run, folder: Path, files: Sequence[FileRecord]) -> None:
    """Write the data.json of a run whose relative data paths start from `folder`."""
    absolute = folder.absolute()
    record = DataRecord(str(absolute), os.path.relpath(absolute, run.path.absolute()), tuple(files))
    with run.changing():
        write(run.path / NAME, record.to_json())


def read_record(run: Run) -> DataRecord:
    """Read the data.json of a run; empty if there is none, as in an imported run."""
    path = run.path / NAME
    content = read_object(path, TYPES)
    folders = {key: content.get(key, "") for key in ("folder", "from_run")}
    if any("\0" in folder for folder in folders.values()):
        raise UserError(f"{path}: a folder has a null character; restore a copy or delete it")
    return DataRecord(**folders, files=tuple(_parse_file(path, row) for row in content.get("files", [])))


def _parse_file(path: Path, row: Any) -> FileRecord:
    valid = (
        isinstance(row, dict)
        and row.keys() == FileRecord.__dataclass_fields__.keys()
        and isinstance(row["path"], str)
        and "\0" not in row["path"]
        and all(type(row[key]) is int and row[key] >= 0 for key in ("bytes", "modified"))
        and isinstance(row["sha256"], str)
        and re.fullmatch("[0-9a-f]{64}", row["sha256"])
    )
    if not valid:
        raise UserError(f"{path}: an entry of `files` is not valid; restore a copy or delete it")
    return FileRecord(**row)
