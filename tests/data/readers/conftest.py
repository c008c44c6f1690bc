"""Write a file and read it in a format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwise.data.read import read_pairs
from headwise.data.readers.base import ReadOptions
from headwise.data.texts import Pair

Read = Callable[..., list[Pair]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read the pairs of a file with this content; of the file itself if there is no content."""

    def read(name: str, content: str | bytes | None, format: str, **options: Any) -> list[Pair]:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(read_pairs((path,), format, ReadOptions(**options)))

    return read
