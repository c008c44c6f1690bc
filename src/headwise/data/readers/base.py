"""The interface of a reader: a file -> records of a source and a target text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

Columns = Sequence[str | int]  # names, or numbers from 1


class Record(NamedTuple):
    """A source and a target; a text without a source has an empty one.

    Two texts of a source have a tab between them (`headwise.text.paired`). Labels and numbers are written out; words
    and their tags have spaces between them. Records of one `group`, such as a document, are held out together.
    """

    number: int  # of the line or row, for error messages
    source: str
    target: str
    group: str = ""


@dataclass(frozen=True)
class ReadOptions:
    """Settings of `[data]` that readers use; each reads what concerns its format."""

    column: str = "upos"  # of CoNLL-U: the column of the tags
    columns: Columns = ()  # of a table: the columns of the texts, then that of the target; or of one text alone
    group: str | int = ""  # of a table: the column whose equal values are held out together
    separator: str = ""  # of CSV, between cells; empty: found from the content
    quoted: bool = True  # of CSV: cells may be quoted; False: quotes are text
    header: bool | None = None  # of CSV and TSV: whether the first row has the names; None: if columns are named
    one_to_one: bool = False  # targets are tags, one for each word of the source
    skip_incomplete: bool = False  # leave out records that lack a text or the target

    @property
    def has_header(self) -> bool:
        named = any(isinstance(column, str) for column in self.columns)
        return named if self.header is None else self.header


Reader = Callable[[Path, ReadOptions], Iterator[Record]]
