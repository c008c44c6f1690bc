"""Parquet, Arrow and folders of `datasets`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.data.readers import arrow
from headwise.errors import UserError

LABEL = {"names": ["neg", "pos"], "_type": "ClassLabel"}
FEATURES = {"label": LABEL, "tags": {"feature": LABEL, "_type": "List"}, "text": {"dtype": "string", "_type": "Value"}}


def build_table(count: int = 3) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "text": [f'text {number} é\n"x"' for number in range(count)],
        "label": [number % 2 for number in range(count)],
        "translation": [{"en": f"dog {number}", "de": f"Hund {number}"} for number in range(count)],
        "words": [["New York", "is"]] * count,
        "tags": [[1, 0]] * count,
        "answers": [[{"text": "x"}, {"text": "y"}]] * count,
        "raw": [b"bytes"] * count,
        "score": [number / 2 for number in range(count)],
    }
    metadata = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    return pa.table(columns).replace_schema_metadata(metadata)


def write_stream(path: Path, table: pa.Table) -> Path:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def write_table(folder: Path, kind: str, table: pa.Table) -> Path:
    path = folder / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=2)
    elif kind == "stream":
        write_stream(path, table)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return path


def save_to_disk(folder: Path, *tables: pa.Table, **state: Any) -> Path:
    """A folder as `Dataset.save_to_disk` writes it."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05}-of-{len(tables):05}.arrow" for number in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        write_stream(folder / name, table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names], **state}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    return folder


@pytest.mark.parametrize("kind", ["parquet", "stream", "file"])
def test_every_kind_of_column(tmp_path: Path, read, kind):
    write_table(tmp_path, kind, build_table())

    def read_columns(*columns: str | int, **options: Any):
        return read(f"a.{kind}", None, "parquet" if kind == "parquet" else "arrow", columns=columns, **options)

    assert read_columns("text", "label")[1:] == [('text 1 é\n"x"', "pos"), ('text 2 é\n"x"', "neg")]
    assert read_columns(1, 2) == read_columns("text", "label")
    assert read_columns("translation.en", "translation.de")[2] == ("dog 2", "Hund 2")
    assert read_columns("words", "tags", one_to_one=True) == [("New_York is", "pos neg")] * 3
    assert read_columns("raw", "text", "answers.text")[:2] == [
        ('bytes\ttext 0 é\n"x"', "x"),
        ('bytes\ttext 0 é\n"x"', "y"),
    ]
    assert read_columns("raw", "score") == [("bytes", "0.0"), ("bytes", "0.5"), ("bytes", "1.0")]
    assert read_columns("translation.en") == [("", "dog 0"), ("", "dog 1"), ("", "dog 2")]


@pytest.mark.parametrize("kind", ["parquet", "stream", "file"])
def test_broken_files_are_refused(tmp_path: Path, read, kind):
    format = "parquet" if kind == "parquet" else "arrow"
    content = write_table(tmp_path, kind, build_table()).read_bytes()
    for broken in (content[: len(content) // 2], b"", b"text,label\na,b\n"):
        with pytest.raises(UserError, match=r"cut: is not a complete Parquet or Arrow file .*; copy it again"):
            read("cut", broken, format, columns=("text", "label"))
    with pytest.raises(UserError, match="none: there is no such file"):
        read("none", None, format, columns=("text", "label"))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (("text", "lable"), "there is no column 'lable'; did you mean label"),
        (("text", "translation.d"), "there is no column 'translation.d'; did you mean translation.de"),
        (("text", "translation"), "row 1: column 'translation' has keys of its own; name one of them: translation.en"),
        ((1, 20), "has 9 columns, and column 20 is read"),
        ((), "which columns are read.*the file has: text, label, translation, translation.en"),
        (("text", "empty"), "row 2: the target is empty"),
    ],
)
def test_errors_name_the_column_and_the_row(tmp_path: Path, read, columns, complaint):
    table = build_table().append_column("empty", pa.array(["a", None, "c"]))
    write_table(tmp_path, "parquet", table)
    with pytest.raises(UserError, match=rf"a.parquet.*{complaint}"):
        read("a.parquet", None, "parquet", columns=columns)


def test_a_value_of_another_type_is_refused(tmp_path: Path, read):
    table = pa.table({"text": ["a"], "day": pa.array([0], pa.date32()), "raw": [b"\xff"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match="row 1: column 'day' is of type date"):
        read("a.parquet", None, "parquet", columns=("text", "day"))
    with pytest.raises(UserError, match=r"a.parquet: .*UTF8"):
        read("a.parquet", None, "parquet", columns=("text", "raw"))


def test_an_unknown_class_label_is_empty(tmp_path: Path, read):
    table = build_table(1).set_column(1, "label", pa.array([-1]))
    write_table(tmp_path, "parquet", table)
    with pytest.raises(UserError, match="row 1: the target is empty"):
        read("a.parquet", None, "parquet", columns=("text", "label"))


def test_rows_are_decoded_a_batch_at_a_time(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(arrow, "BATCH_ROWS", 5)
    sizes: list[int] = []
    list_values = arrow._Column.list_values
    monkeypatch.setattr(
        arrow._Column, "list_values", lambda column, batch: sizes.append(batch.num_rows) or list_values(column, batch)
    )
    pq.write_table(build_table(23), tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, build_table().schema) as writer:
        writer.write_table(build_table(23))
    for format in ("parquet", "arrow"):
        sizes.clear()
        data = TextDataConfig(train=str(tmp_path / f"a.{format}"), format=format, columns=("translation.en", "label"))
        corpus = load_corpus(data.replace(valid=data.train))
        assert [source for source, _ in corpus.train] == [f"dog {number}" for number in range(23)]
        assert max(sizes) == 5


def test_a_folder_of_datasets_has_its_shards_in_order(tmp_path: Path):
    table = build_table(20)
    folder = save_to_disk(tmp_path / "saved", table.slice(12), table.slice(0, 12))
    data = TextDataConfig(train=str(folder), valid=str(folder), format="arrow", columns=("text", "label"))
    numbers = [int(text.split()[1]) for text, _ in load_corpus(data).train]
    assert numbers == [*range(12, 20), *range(12)]


def test_the_splits_of_a_dataset_dict_are_the_parts(tmp_path: Path):
    table = build_table(20)
    for name, count in (("train", 20), ("validation", 3), ("test", 2)):
        save_to_disk(tmp_path / "saved" / name, table.slice(0, count))
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    data = TextDataConfig(root=str(tmp_path), train="saved", format="arrow", columns=("text", "label"))
    corpus = load_corpus(data)
    assert (len(list(corpus.train)), len(corpus.valid), len(corpus.test)) == (20, 3, 2)
    assert len(load_corpus(data.replace(test="saved/validation")).test) == 3


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        (
            {"_indices_data_files": [{"filename": "x"}]},
            r"is a selection of rows by an index; save it again after `dataset.fl",
        ),
        ({"_data_files": []}, "state.json: lists no Arrow files"),
        ({"_data_files": 5}, "state.json: lists no Arrow files"),
        ({"_data_files": [{"filename": "a\0b"}]}, "state.json: lists no Arrow files"),
        ({"_data_files": [{"filename": "../../victim.arrow"}]}, "state.json: lists no Arrow files"),
    ],
)
def test_folders_that_cannot_be_read(tmp_path: Path, state, complaint):
    folder = save_to_disk(tmp_path / "saved", build_table(), **state)
    with pytest.raises(UserError, match=complaint):
        load_corpus(TextDataConfig(train=str(folder), format="arrow", columns=("text", "label")))


def test_a_broken_state_and_a_dict_without_training_data(tmp_path: Path):
    folder = save_to_disk(tmp_path / "saved", build_table())
    (folder / "state.json").write_text("{")
    data = TextDataConfig(train=str(folder), format="arrow", columns=("text", "label"))
    with pytest.raises(UserError, match=r"state.json: is not a JSON object"):
        load_corpus(data)
    (folder / "dataset_dict.json").write_text('{"splits": ["validation"]}')
    with pytest.raises(UserError, match=r"has no split 'train'; name the folder of one in data.train: validation"):
        load_corpus(data)
