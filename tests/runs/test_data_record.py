"""The data.json of a run: written, read again, and never trusted."""

import json

import pytest

from headwise.errors import UserError
from headwise.runs import Run
from headwise.runs.data_record import NAME, DataRecord, FileRecord, read_record, write_record

FILE = {"path": "pairs.tsv", "bytes": 3, "modified": 5, "sha256": "a" * 64}


@pytest.fixture
def run(tmp_path) -> Run:
    return Run.create(tmp_path / "runs" / "a", {})


def test_what_is_written_is_read(run, tmp_path):
    files = (FileRecord(**FILE), FileRecord('odd "näme".tsv', 0, 0, "b" * 64))
    write_record(run, tmp_path / "project", files)
    assert read_record(run) == DataRecord(str(tmp_path / "project"), "../../project", files)


def test_a_run_without_the_file_has_an_empty_record(run):
    assert read_record(run) == DataRecord()


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "[" * 50_000,
        '{"folder": 3}',
        '{"folder": "a\\u0000b"}',
        '{"files": "pairs.tsv"}',
        '{"files": ["pairs.tsv"]}',
        *(
            json.dumps({"files": [{**FILE, key: value}]})
            for key, value in [
                ("path", 3), ("path", "a\0b"), ("bytes", -1), ("bytes", True), ("modified", 1.5), ("sha256", "a"),
                ("sha256", None), ("more", 1),
            ]
        ),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_in_one_sentence(run, content):
    (run.path / NAME).write_text(content)
    with pytest.raises(UserError, match=r"data\.json.*restore a copy or delete"):
        read_record(run)
