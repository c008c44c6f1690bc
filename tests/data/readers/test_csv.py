"""CSV: separators, quotes, headers, and the error of each mistake."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwise.data.read import read_records
from headwise.data.readers.base import ReadOptions
from headwise.data.readers.csv import find_separator
from headwise.errors import UserError


@pytest.mark.parametrize("separator", [",", ";", "|", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_separator_is_found_and_quotes_are_read(read, separator, end, mark):
    rows = [["id", "text", "label"], ["1", f'a{separator} ""b"" é', "yes"], ["", "", ""], ["2", "漢, 字; x", "no"]]
    text = end.join(separator.join(f'"{cell}"' if cell else "" for cell in row) for row in rows)
    expected = [(f'a{separator} "b" é', "yes"), ("漢, 字; x", "no")]
    assert read("a.csv", mark + text, "csv", columns=("text", "label")) == expected


def test_a_cell_may_have_line_breaks_and_errors_name_its_first_line(read):
    text = 'text,label\n"one\n\ntwo",yes\nthree\n'
    assert read("a.csv", text[:-6], "csv", columns=("text", "label")) == [("one\n\ntwo", "yes")]
    with pytest.raises(UserError, match=r"a.csv, line 5: has 1 columns, and column 2 is read"):
        read("a.csv", text, "csv", columns=("text", "label"))


def test_columns_by_number_and_a_header_that_is_skipped(read):
    assert read("a.csv", "a,b,c\nd,e,f\n", "csv", columns=(3, 1)) == [("c", "a"), ("f", "d")]
    assert read("a.csv", "a,b,c\nd,e,f\n", "csv", columns=(3, 1), header=True) == [("f", "d")]
    assert read("a.csv", "a,b,c\nd,e,f\n", "csv") == [("a", "b"), ("d", "e")]
    assert read("a.csv", "1,5;x\n2,5;y\n", "csv", separator=";") == [("1,5", "x"), ("2,5", "y")]


def test_one_column_is_a_text_and_two_texts_are_joined_by_a_tab(read):
    text = 'one,two,label\n"a\tb",c,1\n,,\n'
    assert read("a.csv", text, "csv", columns=("one",)) == [("", "a\tb")]
    assert read("a.csv", text, "csv", columns=("one", "two", "label")) == [("a b\tc", "1")]


@pytest.mark.parametrize(
    ("content", "options", "complaint"),
    [
        ("text,label\na,b\n", {"columns": ("txt", "label")}, "line 1: there is no column 'txt'; did you mean text"),
        ("x,x\na,b\n", {"columns": ("x",)}, "line 1: 2 columns are called 'x'"),
        ("a,b\n", {"columns": ("x", "y"), "header": False}, "names need a header row"),
        ("a,b\nc,\n", {}, "line 2: the target is empty"),
        ("a,b\n,c\n", {}, "line 2: the source is empty"),
        ("a,b,c\na,,c\n", {"columns": (1, 2, 3)}, "line 2: a text is empty"),
        ('a,b\nc,"d\ne,f\n', {}, "line 2: a quote opens a cell and is never closed"),
        ('a,b\n"c" d,e\n', {}, "line 2: text between a closing quote and the next ','"),
        ("a,b\rc,d\r", {}, "line 1: a carriage return without a line feed"),
        ("text,label\n", {"columns": ("text", "label")}, "a.csv: has no pairs"),
        ("", {"columns": ("text", "label")}, "line 1: there is no column 'text'"),
        (b"a,b\ncaf\xe9,d\n", {}, r"line 2: not UTF-8 \(byte 4\); convert it: iconv -f WINDOWS-1252 -t UTF-8 "),
    ],
)
def test_errors_name_the_file_and_the_line(read, content, options, complaint):
    with pytest.raises(UserError, match=complaint):
        read("a.csv", content, "csv", **options)


def test_a_quote_that_is_never_closed_does_not_read_the_file_into_memory(read, monkeypatch):
    monkeypatch.setattr("headwise.data.readers.csv.MAX_CELL", 1000)
    with pytest.raises(UserError, match="line 2: a quote opens a cell and is never closed"):
        read("a.csv", 'a,b\n"c,d\n' + "e,f\n" * 1000, "csv", separator=",")


def test_the_header_decides_between_separators(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text;more,label\nx;y,1\n")
    assert find_separator(path, ReadOptions(columns=("text;more", "label"))) == ","
    assert find_separator(path, ReadOptions(columns=("text", "more,label"))) == ";"


# Read as a whole, a record is stripped, so cells begin and end with a letter here.
CELLS = st.text(st.sampled_from('ab é漢",;|\n\t '), max_size=8).map(lambda text: f"x{text}x")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6), separator=st.sampled_from(",;|\t"))
def test_what_the_standard_library_writes_is_read_back(tmp_path: Path, rows, separator):
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=separator).writerows([("first", "second"), *rows])
    path = tmp_path / "a.csv"
    path.write_bytes(buffer.getvalue().encode())
    options = ReadOptions(columns=("first", "second"))
    assert [record[1:3] for record in read_records((path,), "csv", options)] == rows
