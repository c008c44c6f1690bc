"""Parquet and Arrow tables through pyarrow, streamed by row group or record batch.

Arrow tables are IPC files, IPC streams, or folders that `datasets` has saved (`save_to_disk`), of which `state.json`
lists the files. Where the schema has the features of `datasets`, class labels become their names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headwise.data.files import open_file
from headwise.data.readers.base import ReadOptions, Record
from headwise.data.readers.columns import Cells, build_records, find_column, follow_keys, list_columns
from headwise.errors import UserError
from headwise.utils.extras import needed_for

BATCH_ROWS = 4096  # rows of a row group that are decoded at a time
MAGIC = b"ARROW1"  # of an IPC file; an IPC stream has none
Batches = Callable[[Path, Callable[[Any], list[str]]], Iterator[Any]]  # file, from schema to names -> record batches
SPLITS = {"train": ("train",), "valid": ("validation", "valid", "val", "dev"), "test": ("test",)}


def read_parquet(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read columnar files (Parquet): the columns that `options.columns` lists, by name or by number from 1."""
    return _read_table(path, options, _iterate_parquet)


def read_arrow(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the columns that `options.columns` names of a file or of a folder of `datasets`."""
    return _read_table(path, options, _iterate_arrow)


def read_objects(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet or Arrow file as objects, with the names of class labels."""
    with needed_for(f"{path}: Parquet and Arrow are read by pyarrow"):
        import pyarrow  # noqa: F401
    with open_file(path) as file:
        iterate = _iterate_parquet if file.read(4) == b"PAR1" else _iterate_arrow
    columns: list[_Column] = []

    def resolve(schema: Any) -> list[str]:
        labels = _find_class_labels(schema)
        columns.extend(_Column(name, (), labels.get(name, ())) for name in schema.names)
        return list(schema.names)

    with _explain_errors(path):
        for batch in iterate(path, resolve):
            values = [column.list_values(batch) for column in columns]
            yield from (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*values, strict=True))


def list_datasets_files(folder: Path) -> tuple[Path, ...]:
    """The Arrow files of a folder that `Dataset.save_to_disk` wrote, in the order of its rows."""
    state = _load_json(folder / "state.json")
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise UserError(
            f"{folder}: is a selection of rows by an index; save it again after `dataset.flatten_indices()`"
        )
    names = [str(item.get("filename")) for item in _get_list(state, "_data_files") if isinstance(item, dict)]
    if not names or any(Path(name).name != name or "\0" in name for name in names):
        raise UserError(f"{folder / 'state.json'}: lists no Arrow files of this folder; save the data set again")
    return tuple(folder / name for name in names)


def find_splits(folder: Path) -> dict[str, str]:
    """The folders of the training, validation and test parts that `DatasetDict.save_to_disk` wrote; {} in others."""
    if not (folder / "dataset_dict.json").is_file():
        return {}
    names = [str(name) for name in _get_list(_load_json(folder / "dataset_dict.json"), "splits")]
    parts = {part: next((str(folder / name) for name in known if name in names), "") for part, known in SPLITS.items()}
    if not parts["train"]:
        raise UserError(f"{folder}: has no split 'train'; name the folder of one in data.train: {', '.join(names)}")
    return parts


def _get_list(data: dict[str, Any], key: str) -> list[Any]:
    """The list under a key; empty if there is none."""
    value = data.get(key)
    return value if isinstance(value, list) else []


def _load_json(path: Path) -> dict[str, Any]:
    with open_file(path) as file:
        try:
            value = json.loads(file.read(2**24))
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, dict):
        raise UserError(f"{path}: is not a JSON object as `datasets` writes it; save the data set again")
    return value


def _read_table(path: Path, options: ReadOptions, iterate: Batches) -> Iterator[Record]:
    with needed_for(f"{path}: Parquet and Arrow are read by pyarrow"):
        import pyarrow  # noqa: F401
    yield from build_records(path, _select_cells(path, options, iterate), options, "row")


def _select_cells(path: Path, options: ReadOptions, iterate: Batches) -> Iterator[tuple[int, Cells]]:
    number = 0
    columns: list[_Column] = []
    with open_file(path), _explain_errors(path):
        for batch in iterate(path, partial(_resolve_columns, path, options, columns)):
            values = [column.list_values(batch) for column in columns]
            yield from enumerate(zip(*values, strict=True), number + 1)
            number += batch.num_rows


def _iterate_parquet(path: Path, resolve: Callable[[Any], list[str]]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(BATCH_ROWS, columns=resolve(file.schema_arrow), use_threads=False)


def _iterate_arrow(path: Path, resolve: Callable[[Any], list[str]]) -> Iterator[Any]:
    import pyarrow as pa

    with pa.OSFile(str(path)) as source:
        is_file = source.read(len(MAGIC)) == MAGIC
        source.seek(0)
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        resolve(reader.schema)
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
            yield from (batch.slice(begin, BATCH_ROWS) for begin in range(0, batch.num_rows, BATCH_ROWS))


def _resolve_columns(path: Path, options: ReadOptions, columns: list[_Column], schema: Any) -> list[str]:
    """Append the columns that are read; return the names of those that hold them."""
    names, known = list(schema.names), list_names(schema)
    labels = _find_class_labels(schema)
    for column in list_columns(path, options, known):
        if isinstance(column, int):
            if not 0 < column <= len(names):
                raise UserError(f"{path}: has {len(names)} columns, and column {column} is read; correct data.columns")
            column = names[column - 1]
        find_column(path, known, column)
        root = column if column in names else column.partition(".")[0]
        parts = column.split(".")[1:] if root != column else []
        columns.append(_Column(root, parts, labels.get(column, ())))
    return list(dict.fromkeys(column.root for column in columns))


@dataclass(frozen=True)
class _Column:
    """A column, or what is under a key of one (`parts`); values of a class label become their names."""

    root: str
    parts: Sequence[str]
    labels: Sequence[str] = ()

    def list_values(self, batch: Any) -> list[Any]:
        import pyarrow as pa

        array = batch.column(self.root)
        if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
            array = array.cast(pa.string())
        values = array.to_pylist()
        if self.parts:
            values = [None if value is None else follow_keys(value, self.parts) for value in values]
        return [self.name_label(value) for value in values] if self.labels else values

    def name_label(self, value: Any) -> Any:
        """The name of a label, or of each of a list; none for -1, which stands for an unknown label."""
        if isinstance(value, list):
            return [self.name_label(item) for item in value]
        return self.labels[value] if isinstance(value, int) and 0 <= value < len(self.labels) else None


def list_names(schema: Any) -> list[str]:
    """The names of columns and of the keys below them, as `data.columns` names them."""
    import pyarrow as pa

    names: list[str] = []

    def visit(field: Any, name: str) -> None:
        names.append(name)
        inner = field.type
        while pa.types.is_list(inner) or pa.types.is_large_list(inner):
            inner = inner.value_type
        if pa.types.is_struct(inner):
            for below in inner:
                visit(below, f"{name}.{below.name}")

    for field in schema:
        visit(field, field.name)
    return names


def _find_class_labels(schema: Any) -> dict[str, Sequence[str]]:
    """The names of labels by column, for each `ClassLabel` or list of them in the features of `datasets`."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        labels = {name: _find_label_names(feature) for name, feature in features.items()}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: names for name, names in labels.items() if names}


def _find_label_names(feature: Any) -> Sequence[str]:
    while isinstance(feature, dict) and "feature" in feature:  # a list of labels
        feature = feature["feature"]
    feature = feature[0] if isinstance(feature, list) and feature else feature
    names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path}: is not a complete Parquet or Arrow file ({reason}); copy it again") from None
