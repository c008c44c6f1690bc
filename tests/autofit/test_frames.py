"""`headwise.fit` on data frames: the rows become a file of the run."""

import datetime
import json
import math
import shutil

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import headwise
from headwise.autofit.frames import iterate_rows, write_frame, write_rows
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel

TEXTS = [f"the {adjective} film of the year {year}" for year in range(1980, 2010) for adjective in ("good", "dull")]
LABELS = ["pos" if "good" in text else "neg" for text in TEXTS]
COLUMNS = {"review": TEXTS, "label": LABELS}
ROWS = [{"review": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]

FRAMES = {
    "pandas": lambda: pd.DataFrame(COLUMNS, index=range(100, 160)),
    "pandas categories": lambda: pd.DataFrame(COLUMNS).astype({"label": "category"}),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars categories": lambda: pl.DataFrame(COLUMNS).with_columns(pl.col("label").cast(pl.Categorical)),
    "polars lazy": lambda: pl.DataFrame(COLUMNS).lazy(),
    "pyarrow": lambda: pa.table(COLUMNS),
    "dicts": lambda: ROWS,
    "generator": lambda: iter(ROWS),
    "columns": lambda: COLUMNS,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame_has_the_same_rows(kind):
    assert list(iterate_rows(FRAMES[kind]())) == ROWS


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"n": [1, None], "x": [0.5, math.inf], "day": pd.to_datetime(["2020-01-02", None])}),
        pd.DataFrame({"n": [1, None], "x": [0.5, None], "day": ["2020-01-02T00:00:00", None]}).convert_dtypes(),
        pl.DataFrame({"n": [1.0, None], "x": [0.5, math.nan], "day": [datetime.datetime(2020, 1, 2), None]}),
    ],
)
def test_missing_values_become_null_and_dates_their_iso_form(frame, tmp_path):
    assert write_rows(tmp_path / "rows.jsonl", iterate_rows(frame)) == 2
    first, second = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert first == {"n": 1, "x": 0.5, "day": "2020-01-02T00:00:00"}
    assert second == {"n": None, "x": None, "day": None}


def test_lists_arrays_and_scalars_of_numpy_are_written(tmp_path):
    rows = [{"a": np.array(["x", "y"]), "b": np.int64(3), "c": np.bool_(True), "d": {"e": (1, np.float32(0.5))}}]
    write_rows(tmp_path / "rows.jsonl", rows)
    assert json.loads((tmp_path / "rows.jsonl").read_text()) == {
        "a": ["x", "y"],
        "b": 3,
        "c": True,
        "d": {"e": [1, 0.5]},
    }


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"text": []}), "no rows"),
        (pd.DataFrame([["a", "b"]], columns=["x", "x"]), "2 columns are called 'x'"),
        (pd.Series(["a", "b"]), "Series is no table; pass a pandas or polars frame"),
        (3, "int is no table"),
        ([{"a": 1}, "b"], "row 2 is no dict"),
        ({"a": [1, 2], "b": [1]}, "lists of the same length"),
        ([{"a": "\ud800"}], "row 1: has half of a surrogate pair"),
    ],
)
def test_what_is_no_table_is_refused_in_one_sentence(frame, message):
    with pytest.raises(UserError, match=message) as caught, write_frame(frame, "frame"):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_fit_a_frame(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = list[str]()
    model = headwise.fit(FRAMES[kind](), minutes=0.02, name="films", announce=lines.append)
    assert isinstance(model, TrainedModel)
    assert model.classify(["the good film"])
    assert lines[0].startswith("films.jsonl: labelled texts (rows with the keys review, label")
    assert any(line.startswith("baseline, bag of words") for line in lines)
    scores = model.evaluate().scores
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert str(tmp_path) not in (tmp_path / "runs/films/config.toml").read_text()
    shutil.move(tmp_path / "runs" / "films", tmp_path / "elsewhere")  # a run has its frame with it
    monkeypatch.chdir("/")
    assert headwise.load(tmp_path / "elsewhere").evaluate().scores == scores


def test_the_arguments_of_fit_are_those_of_the_command(tmp_path):
    stars = [{"review": text, "stars": number % 5} for number, text in enumerate(TEXTS)]
    lines = list[str]()
    model = headwise.fit(
        stars, minutes=0.01, task="regress", columns=("review", "stars"), runs=tmp_path, announce=lines.append
    )
    assert model.experiment.task.kind == "regress"
    assert model.run.path == tmp_path / "frame"
    assert "columns: review -> stars" in lines


def test_a_frame_that_is_refused_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(UserError, match="the data frame: there is no column 'stars'; the columns are review, label"):
        headwise.fit(pd.DataFrame(COLUMNS), columns=["review", "stars"])
    with pytest.raises(UserError, match="pass the frame alone"):
        headwise.fit(pd.DataFrame(COLUMNS), "pairs.tsv")
    assert not list(tmp_path.iterdir())
