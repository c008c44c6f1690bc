"""`metrics.jsonl`: one JSON object a line, in the order of steps."""

import json
import os
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.utils.files import open_regular, parse_json, read_bytes, sync, write, writing

Row = Mapping[str, Any]
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
NUMBERS = ("step", "epoch", "minutes", "loss", "nll", "rate", "norm", "tokens", "tokens_per_second")


class Metrics:
    """Rows appended by training, which any process may read at any time."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, row: Row) -> None:
        line = json.dumps(to_json_values(row)) + "\n"
        with writing(self.path), os.fdopen(open_regular(self.path, APPEND), "ab") as file:
            file.write(line.encode())

    def rows(self) -> list[Row]:
        """All valid rows; incomplete lines and lines that training cannot have written are skipped."""
        return [row for _, row in self._lines()]

    def rewind(self, step: int) -> None:
        """Drop the rows after `step`: a resumed run writes them again."""
        kept = [line for line, row in self._lines() if (row.get("step") or 0) <= step]
        write(self.path, "".join(kept))

    def sync(self) -> None:
        if self.path.exists():
            sync(self.path)

    def _lines(self) -> Iterator[tuple[str, Row]]:
        try:
            content = read_bytes(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror}; restore a copy or delete it") from error
        for line in content.decode("utf-8", "replace").splitlines(keepends=True):
            try:
                row = parse_json(line)
            except ValueError:
                continue
            if _is_row(row) and line.endswith("\n"):
                yield line, row


def _is_row(row: Any) -> bool:
    """Whether a value has the types of a row, so that readers need not check them."""
    if not isinstance(row, dict) or not all(_is_number(row.get(name)) for name in NUMBERS):
        return False
    valid, samples = row.get("valid", {}), row.get("samples", [])
    return (
        isinstance(valid, dict)
        and all(map(_is_number, valid.values()))
        and isinstance(samples, list)
        and all(isinstance(sample, dict) for sample in samples)
    )


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def to_json_values(value: Any) -> Any:
    """Replace numbers that are not finite by None: JSON has no NaN."""
    if isinstance(value, Mapping):
        return {key: to_json_values(item) for key, item in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
