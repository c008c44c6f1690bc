"""TSV with columns selected by name or number."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwise import UserError
from headwise.data.read import read_records
from headwise.data.readers.base import Columns, ReadOptions, Record


def read_table(path: Path, columns: Columns) -> list[Record]:
    return list(read_records((path,), "tsv", ReadOptions(columns=columns)))


def write_table(folder: Path, text: str) -> Path:
    path = folder / "t.tsv"
    path.write_text(text)
    return path


def test_columns_are_selected_by_name_and_the_last_is_the_label(tmp_path: Path) -> None:
    path = write_table(tmp_path, 'id\tone\ttwo\tlabel\n7\ta b\t"c"\tyes\n\n8\td\te\tno\n')
    assert [row[:3] for row in read_table(path, ("one", "two", "label"))] == [(2, 'a b\t"c"', "yes"), (4, "d\te", "no")]


def test_columns_are_selected_by_number(tmp_path: Path) -> None:
    path = write_table(tmp_path, "gj04\t1\t\tOur friends won't buy this.\ngj04\t0\t*\tThey drank the pub.\n")
    assert [row[1:3] for row in read_table(path, (4, 2))] == [
        ("Our friends won't buy this.", "1"),
        ("They drank the pub.", "0"),
    ]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("one\tlabel\na\tb\n", ("two", "label"), "line 1: there is no column 'two'"),
        ("one\tlabel\na\n", ("one", "label"), "line 2: has 1 columns, and column 2 is read"),
        ("one\tlabel\n\tb\n", ("one", "label"), "line 2: the source is empty"),
        ("one\ttwo\tlabel\n\ta\tb\n", ("one", "two", "label"), "line 2: a text is empty"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, columns: tuple, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_table(write_table(tmp_path, text), columns)
