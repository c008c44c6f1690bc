"""Data frames as training data: pandas, polars and pyarrow tables and rows in memory, written out as JSON lines.

None of these packages is imported: a frame is known by its methods. The data of a run are files, which `evaluate` and
`resume` read again, so the rows become a file in the folder `data` of the run.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from headwise.errors import UserError
from headwise.runs import Run
from headwise.runs.data_record import read_record, write_record

ARROW_ROWS = 4096  # rows of an Arrow table that become Python objects at a time
MISSING = ("NAType", "NaTType")  # the types of pandas' missing values, which compare with nothing


class PandasFrame(Protocol):
    """What is used of a pandas DataFrame."""

    @property
    def columns(self) -> Any: ...
    def itertuples(self, index: bool = ..., name: Any = ...) -> Iterable[tuple[Any, ...]]: ...


class PolarsFrame(Protocol):
    """What is used of a polars DataFrame."""

    @property
    def columns(self) -> list[str]: ...
    def iter_rows(self) -> Iterator[tuple[Any, ...]]: ...


class PolarsLazyFrame(Protocol):
    """What is used of a polars LazyFrame."""

    def collect(self) -> Any: ...


class ArrowTable(Protocol):
    """What is used of a pyarrow Table."""

    @property
    def column_names(self) -> list[str]: ...
    def to_batches(self, max_chunksize: int | None = ...) -> list[Any]: ...


Frame: TypeAlias = (
    PandasFrame | PolarsFrame | PolarsLazyFrame | ArrowTable | Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]
)


def iterate_rows(frame: Any) -> Iterator[dict[str, Any]]:
    """The rows of a pandas, polars or pyarrow table, of a mapping from names to columns, or of a list of mappings, such
    as a data set of `datasets`."""
    if hasattr(frame, "collect") and hasattr(frame, "lazy"):  # polars' LazyFrame
        frame = frame.collect()
    rows: Iterable[tuple[Any, ...]]
    if hasattr(frame, "iter_rows") and hasattr(frame, "columns"):
        names, rows = list(frame.columns), frame.iter_rows()
    elif hasattr(frame, "itertuples") and hasattr(frame, "columns"):
        names, rows = list(frame.columns), frame.itertuples(index=False, name=None)
    elif hasattr(frame, "to_batches") and hasattr(frame, "column_names"):
        names, rows = list(frame.column_names), _iterate_arrow(frame)
    elif isinstance(frame, Mapping):
        names, rows = list(frame), _zip_columns(frame)
    elif isinstance(frame, Iterable) and not isinstance(frame, str | bytes):
        yield from _iterate_mappings(frame)
        return
    else:
        raise UserError(_describe_unknown(frame))
    keys = [".".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in names]
    if repeated := next((key for key in keys if keys.count(key) > 1), ""):
        raise UserError(f"the data frame: {keys.count(repeated)} columns are called '{repeated}'; rename them")
    for row in rows:
        yield dict(zip(keys, row, strict=True))


def _describe_unknown(frame: object) -> str:
    kind = f"{type(frame).__module__}.{type(frame).__qualname__}".removeprefix("builtins.")
    return f"fit: {kind} is no table; pass a pandas or polars frame, a list of dicts, or the path of a file"


def _iterate_arrow(table: Any) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=ARROW_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _zip_columns(columns: Mapping[Any, Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    try:
        yield from zip(*columns.values(), strict=True)
    except (TypeError, ValueError):
        raise UserError("fit: the columns of a dict must be lists of the same length; pass such ones") from None


def _iterate_mappings(rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The rows of an iterable; with the names of class labels, if it is a data set of `datasets`."""
    features = getattr(rows, "features", None)
    labels = {key: feature.names for key, feature in dict(features or {}).items() if hasattr(feature, "names")}
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            problem = f"the data frame: row {number} is no dict; correct it"
            raise UserError(_describe_unknown(rows) if number == 1 else problem)
        yield {str(key): _name_label(value, labels.get(key)) for key, value in row.items()}


def _name_label(value: Any, names: Sequence[str] | None) -> Any:
    return names[value] if names and isinstance(value, int) and 0 <= value < len(names) else value


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as JSON lines and return their number. Missing values become null, dates their ISO form."""
    number = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for number, row in enumerate(rows, 1):
            line = json.dumps({key: _to_json(value) for key, value in row.items()}, ensure_ascii=False)
            try:
                file.write(line + "\n")
            except UnicodeEncodeError:
                raise UserError(
                    f"the data frame, row {number}: has half of a surrogate pair, which UTF-8 cannot encode; remove it"
                ) from None
    if not number:
        raise UserError("the data frame: has no rows; pass one with examples to learn from")
    return number


def _to_json(value: Any) -> Any:
    """A cell as a value of JSON."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if type(value).__name__ in MISSING:
        return None
    if isinstance(value, date | time | datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # an array or a scalar of numpy
        return _to_json(value.tolist())
    if isinstance(value, Iterable):  # a list, a polars Series
        return [_to_json(item) for item in value]
    return str(value)


@contextmanager
def write_frame(frame: Any, name: str) -> Iterator[Path]:
    """A frame as a JSON lines file `NAME.jsonl` of a temporary folder; errors about the file speak of the frame."""
    with tempfile.TemporaryDirectory(prefix="headwise-") as folder:
        path = Path(folder) / f"{Path(name).name or 'frame'}.jsonl"
        write_rows(path, iterate_rows(frame))
        try:
            yield path
        except UserError as error:
            raise UserError(str(error).replace(str(path), "the data frame")) from None


def move_into_run(run: Run, path: Path) -> None:
    """Move a data file of a run into its folder `data`, and say so in config.toml and data.json."""
    target = run.path / "data" / path.name
    with run.lock():
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(path, target)
        config = run.config
        config["data"]["train"] = [str(target) if name == str(path) else name for name in config["data"]["train"]]
        record = read_record(run)
        files = [replace(file, path=str(target)) if file.path == str(path) else file for file in record.files]
        run.write_config(config)
        write_record(run, Path(), files)
        path.unlink()
