"""JSON lines: an object in each line, with a text under the key `text`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from headwise.data.files import read_lines
from headwise.errors import UserError


def is_jsonl(path: Path) -> bool:
    return path.name.endswith((".jsonl", ".jsonl.gz"))


def read_jsonl_texts(path: Path) -> Iterator[str]:
    """Yield the text of each line; blank texts and blank lines are skipped."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise UserError(f'{path}, line {number}: no text under the key "text"; write {{"text": "..."}}')
        if text.strip():
            yield text
