"""Compressed files, encodings, patterns and limits."""

import bz2
import gzip
import lzma
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from headwise.config.base import validate
from headwise.data import files
from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.data.formats import choose_format, guess_format
from headwise.data.read import expand_files, read_pairs
from headwise.data.readers.base import ReadOptions
from headwise.errors import UserError

TEXT = "".join(f"word {number} é\tWort {number}\r\n" for number in range(3000))
PAIRS = [(f"word {number} é", f"Wort {number}") for number in range(3000)]


def compress_zstd(content: bytes) -> bytes:
    return pa.Codec("zstd").compress(content).to_pybytes()


COMPRESSORS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": compress_zstd}


def read(path: Path, format: str = "tsv", **options):
    return list(read_pairs((path,), format, ReadOptions(**options)))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_files_are_recognised_by_name_or_content(tmp_path, suffix):
    content = COMPRESSORS[suffix](TEXT.encode())
    for name in (f"pairs.tsv{suffix}", "pairs.tsv"):
        (tmp_path / name).write_bytes(content)
        assert read(tmp_path / name) == PAIRS


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_broken_compressed_files_are_refused(tmp_path, suffix):
    content = COMPRESSORS[suffix](TEXT.encode())
    path = tmp_path / f"pairs.tsv{suffix}"
    names = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "Zstandard"}
    for broken in (content[:-40], TEXT.encode()):
        path.write_bytes(broken)
        with pytest.raises(UserError, match=rf"is not a complete {names[suffix]} file; copy it again, or drop the"):
            read(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_encodings_with_a_byte_order_mark_are_read(tmp_path, encoding, suffix):
    path = tmp_path / f"pairs.tsv{suffix}"
    content = TEXT.encode(encoding)
    path.write_bytes(gzip.compress(content) if suffix else content)
    assert read(path) == PAIRS
    lines = read(path, "lines")
    assert lines[1] == ("", "word 1 é\tWort 1") and len(lines) == 3000


def test_utf_16_in_big_endian_order(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"\xfe\xff" + "é\tб\n".encode("utf-16-be"))
    assert read(tmp_path / "a.tsv") == [("é", "б")]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("ab\tcd\n".encode("utf-16-le"), r"looks like UTF-16 without a byte-order mark; convert it: iconv -f UTF-16LE"),
        ("ab\tcd\n".encode("utf-16-be"), r"looks like UTF-16 without a byte-order mark; convert it: iconv -f UTF-16BE"),
        ("ab\tcd\n".encode("utf-16")[:-1], "is not valid UTF-16-LE as its byte-order mark says"),
        (
            "caf\xe9\tb\n".encode("latin-1"),
            r"line 1: not UTF-8 \(byte 4\); convert it: iconv -f WINDOWS-1252 -t UTF-8 '",
        ),
    ],
)
def test_other_encodings_are_refused_with_a_command(tmp_path, content, complaint):
    path = tmp_path / "my pairs.tsv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        read(path)


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl", "conll"])
def test_a_line_that_fills_the_memory_is_refused(tmp_path, monkeypatch, format):
    monkeypatch.setattr(files, "MAX_LINE", 10_000)
    path = tmp_path / f"a.{format}.gz"
    path.write_bytes(gzip.compress("é".encode() * 10**6))
    with pytest.raises(UserError, match="line 1: longer than 0 MB; split the line"):
        read(path, format, columns=("a", "b") if format == "jsonl" else ())


def test_a_small_archive_with_an_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE", 10_000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("reviews.pos", "x" * 10**6)
    with pytest.raises(UserError, match=r"a.zip, reviews.pos, line 1: longer than"):
        read(tmp_path / "a.zip", "labelled-zip")


def test_patterns_and_folders_stand_for_shards_in_order(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{name},1\n")
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(b"text,label\nd,1\n"))
    (tmp_path / "notes.txt").write_text("not read")
    columns = {"columns": ("text", "label")}
    assert [text for text, _ in read(tmp_path / "*.csv", "csv", **columns)] == ["a", "b", "c"]
    assert [text for text, _ in read(tmp_path, "csv", **columns)] == ["a", "b", "c", "d"]
    data = TextDataConfig(
        root=str(tmp_path), train=("c.csv", "[ab].csv"), valid="c.csv", format="csv", columns=("text", "label")
    )
    assert [text for text, _ in load_corpus(data).train] == ["c", "a", "b"]
    with pytest.raises(UserError, match=r"e\*.csv: no file matches this pattern"):
        expand_files([tmp_path / "e*.csv"], "csv")


def test_an_error_names_the_shard(tmp_path):
    for name, row in (("a", "x,1"), ("b", ",1")):
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{row}\n")
    with pytest.raises(UserError, match=r"b.csv, line 2: the source is empty"):
        read(tmp_path / "*.csv", "csv", columns=("text", "label"))


def test_shards_of_tsv_come_from_a_pattern_or_with_columns(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.tsv").write_text(f"{name}\tx\n")
    assert [source for source, _ in read(tmp_path / "?.tsv")] == ["a", "b", "c"]
    two = tmp_path / "a.tsv", tmp_path / "b.tsv"
    assert list(read_pairs(two)) == [("a\tx", "b\tx")]  # aligned
    assert list(read_pairs(two, "tsv", ReadOptions(columns=(1, 2)))) == [("a", "x"), ("b", "x")]


def test_a_tsv_that_is_something_else_names_its_format(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(
        UserError, match=r"a.csv, line 1: no tab; a line is source, tab, target, or set data.format = 'csv'"
    ):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"format": "squad", "columns": ["a", "b"]}, "the format 'squad' has no `columns`"),
        ({"format": "csv", "columns": [0, 1]}, "numbered from 1"),
        ({"format": "csv", "separator": ", "}, "`separator` is the one character"),
        ({"format": "tsv", "separator": ";"}, "`separator` is the one character"),
        ({"format": "jsonl", "header": True}, "`header` is for the formats csv and tsv"),
        ({"format": "csv", "group": "id"}, "`group` is a column of a file with `columns`"),
        ({"format": "csv", "columns": ["text"], "reverse": True}, "nothing can `reverse`"),
        ({"format": "csv", "columns": ["text"], "prefix": "x"}, "no sources to put a `prefix` before"),
    ],
)
def test_settings_that_do_not_fit_the_format_are_refused(table, complaint):
    with pytest.raises(UserError, match=complaint):
        validate(TextDataConfig, table)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.CSV.gz", "csv"),
        ("a.ndjson.zst", "jsonl"),
        ("a.parquet", "parquet"),
        ("a.conll.bz2", "conll"),
        ("a.conllu", "conllu"),
        ("train-v2.0.json", "squad"),
        ("a.zip", "labelled-zip"),
        ("a.en", ""),
    ],
)
def test_the_format_of_a_name(name, format):
    assert guess_format(Path(name)) == format


def test_other_data_of_a_run_are_read_with_its_columns():
    trained = TextDataConfig(train="a.csv", format="csv", columns=("text", "label"), separator=";")
    assert choose_format(Path("b.csv"), trained, unpaired=False) == trained
    other = choose_format(Path("b.jsonl"), trained, unpaired=False)
    assert (other.format, other.columns, other.separator) == ("jsonl", ("text", "label"), "")
    assert choose_format(Path("b.conllu"), trained, unpaired=False).columns == ()
    assert choose_format(Path("b.txt"), TextDataConfig(train="a.en"), unpaired=False).format == "tsv"
    assert choose_format(Path("b.jsonl"), TextDataConfig(train="a", format="lines"), unpaired=True).format == "lines"
    texts = TextDataConfig(train="a.parquet", format="parquet", columns=("text",))
    assert choose_format(Path("b.jsonl"), texts, unpaired=True).format == "jsonl"
