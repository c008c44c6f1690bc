"""The interface of a reader: a file -> records of a source and a target text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Record = tuple[int, str, str]  # line number for error messages, source, target
Columns = Sequence[str | int]  # names, or numbers from 1


@dataclass(frozen=True)
class ReadOptions:
    """Settings of `[data]` that readers use; each reads what concerns its format."""

    column: str = "upos"  # of CoNLL-U: the column of the tags
    columns: Columns = ()  # of a table: the columns of the texts, then that of the label


Reader = Callable[[Path, ReadOptions], Iterator[Record]]
