"""Every task on texts reads every table format through the same readers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwise.data.config import TABLES
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment

ROWS: list[dict[str, Any]] = [
    {
        "text": f'number {number}, "quoted"\nand é',
        "other": f"second {number % 7}",
        "translation": f"Nummer {number}",
        "label": "even" if number % 2 == 0 else "odd",
        "score": number / 10,
        "words": f"a dog{number} runs",
        "tags": "D N V",
        "answer": f"number {number}",
    }
    for number in range(60)
]
TASKS: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {  # task, columns, model
    "transduce": ({"sample": 4}, ("text", "translation"), "transformer-tiny"),
    "classify": ({}, ("text", "label"), "transformer-tiny"),
    "classify pairs": ({}, ("text", "other", "label"), "transformer-tiny"),
    "regress": ({}, ("text", "other", "score"), "transformer-tiny"),
    "tag": ({}, ("words", "tags"), "transformer-tiny"),
    "answer": ({}, ("other", "text", "answer"), "bert-tiny"),
    "language-model": ({"context": 32}, ("text",), "transformer-tiny"),
    "masked": ({"context": 32}, ("text",), "bert-tiny"),
    "denoise": ({"context": 32}, ("text",), "t5-tiny"),
    "embed": ({}, ("text",), "skipgram"),
}


def write_rows(folder: Path, format: str) -> Path:
    path = folder / f"rows.{format}"
    if format in ("csv", "tsv"):
        rows = [row if format == "csv" else {**row, "text": row["text"].replace("\n", " ")} for row in ROWS]
        with open(path, "w", newline="") as file:
            quoting = {"quoting": csv.QUOTE_NONE, "quotechar": None} if format == "tsv" else {}
            writer = csv.DictWriter(file, list(ROWS[0]), delimiter="," if format == "csv" else "\t", **quoting)
            writer.writeheader()
            writer.writerows(rows)
        return path
    rows = [{**row, "words": row["words"].split(), "tags": row["tags"].split()} for row in ROWS]
    if format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif format == "json":
        path.write_text(json.dumps(rows))
    elif format == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        table = pa.Table.from_pylist(rows)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("format", TABLES)
@pytest.mark.parametrize("name", TASKS)
def test_the_data_of_a_task(tmp_path: Path, name: str, format: str) -> None:
    settings, columns, model = TASKS[name]
    data = {"train": str(write_rows(tmp_path, format)), "format": format, "columns": columns, "cache": str(tmp_path)}
    experiment = parse_experiment(
        {
            "task": {"kind": name.split()[0], **settings},
            "data": data,
            "tokeniser": "words",
            "model": model,
            "train": {"steps": 1, "batch_size": 8, "threads": 1},
        }
    )
    prepared = experiment.task.task_class.prepare(experiment.data, experiment.tokeniser)
    assert len(prepared.train) + len(prepared.valid) == 60
    expected = set()
    for row in ROWS:
        texts = [str(row[column]) for column in columns]
        expected.add(("\t".join(texts[:-1]), texts[-1]))
    if format == "tsv":
        expected = {(source.replace("\n", " "), target.replace("\n", " ")) for source, target in expected}
    assert prepared.valid_pairs and set(prepared.valid_pairs) <= expected


@pytest.mark.parametrize("name", ["classify", "language-model"])
def test_a_run_is_trained_from_parquet(tmp_path: Path, name: str) -> None:
    settings, columns, model = TASKS[name]
    experiment = parse_experiment(
        {
            "task": {"kind": name, **settings},
            "data": {"train": str(write_rows(tmp_path, "parquet")), "format": "parquet", "columns": columns,
                     "cache": str(tmp_path)},
            "tokeniser": "words", "model": model, "train": {"steps": 1, "batch_size": 8, "threads": 1},
        }
    )  # fmt: skip
    run, _ = train_experiment(experiment, tmp_path / "runs")
    assert 'format = "parquet"' in (run.path / "config.toml").read_text()
