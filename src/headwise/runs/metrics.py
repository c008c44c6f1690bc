"""`metrics.jsonl`: one JSON object a line, in the order of steps."""

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from headwise.files import sync, write, writing

Row = Mapping[str, Any]


class Metrics:
    """Rows that are appended while training and read at any time, also by other processes."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, row: Row) -> None:
        line = json.dumps(_plain(row)) + "\n"
        with writing(self.path), self.path.open("ab") as file:
            file.write(line.encode())

    def rows(self) -> list[Row]:
        """All whole rows; a line torn by a kill is passed over."""
        return [row for _, row in self._lines()]

    def rewind(self, step: int) -> None:
        """Forget the rows after `step`: a resumed run will write them again."""
        kept = [line for line, row in self._lines() if row.get("step", 0) <= step]
        write(self.path, "".join(kept))

    def sync(self) -> None:
        if self.path.exists():
            sync(self.path)

    def _lines(self) -> Iterator[tuple[str, Row]]:
        if not self.path.exists():
            return
        for line in self.path.read_bytes().decode("utf-8", "replace").splitlines(keepends=True):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and line.endswith("\n"):
                yield line, row


def _plain(value: Any) -> Any:
    """JSON has no NaN: what is not finite is written as null."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
