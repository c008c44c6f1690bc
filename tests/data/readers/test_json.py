"""JSON files that are one value, decoded object by object."""

import json
import tracemalloc

import pytest

from headwise.data.config import TextDataConfig
from headwise.data.corpora import open_training_pairs
from headwise.data.formats import choose_format
from headwise.data.readers import json as reader
from headwise.data.readers.base import ReadOptions
from headwise.data.readers.json import read_json, read_members, read_objects
from headwise.errors import UserError

ROWS = [{"text": f'Größe {n} 😀 \\ " [{{', "n": {"x": -1.5e3, "y": [n, None]}} for n in range(50)]


@pytest.mark.parametrize("ascii", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 2**18])
def test_objects_are_those_of_the_json_module_for_blocks_of_any_size(ascii, indent, block, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "BLOCK", block)
    path = tmp_path / "rows.json"
    for value in (ROWS, {"a": 12, "data": ROWS, "b": {"c": "d"}, "e": []}):
        path.write_text(json.dumps(value, ensure_ascii=ascii, indent=indent), encoding="utf-8")
        assert list(read_objects(path)) == list(enumerate(ROWS, 1))
    assert [member for member in read_members(path) if not member.listed] == [
        ("a", 12, False),
        ("b", {"c": "d"}, False),
    ]


def test_nested_keys_are_read_by_name(tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    records = list(read_json(tmp_path / "rows.json", ReadOptions(columns=("text", "n.x"))))
    assert (records[3].source, records[3].target) == (ROWS[3]["text"], "-1500.0")
    with pytest.raises(UserError, match=r"rows\.json, object 1: there is no key 'label'"):
        list(read_json(tmp_path / "rows.json", ReadOptions(columns=("text", "label"))))


def test_a_run_that_was_trained_on_json_reads_other_json(tmp_path):
    data = TextDataConfig(train=("rows.json",), format="json", columns=("text", "n.x"))
    (tmp_path / "other.json").write_text(json.dumps(ROWS))
    other = choose_format(tmp_path / "other.json", data, unpaired=False).replace(train=(str(tmp_path / "other.json"),))
    assert len(list(open_training_pairs(other))) == len(ROWS)


def test_memory_is_that_of_some_objects(tmp_path):
    path = tmp_path / "large.json"
    with open(path, "w") as file:
        file.write('{"data": [')
        file.writelines(json.dumps({"text": "x" * 1000}) + ", " for _ in range(20_000))
        file.write("{}]}")
    tracemalloc.start()
    assert sum(1 for _ in read_objects(path)) == 20_001
    assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 5
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'[{"a": 1}', "is not valid JSON .it ends too early, character 10"),
        (b'[{"a": 1} {"b": 2}]', "expecting ,, character 11"),
        (b'[{"a": }]', "is not valid JSON .expecting value"),
        (b'[{"a": "\xff"}]', "not UTF-8"),
        (b'[{"a": "\\ud800"}]', "half of a character"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"a": 1}, 2]', "item 2: is no object"),
    ],
)
def test_mistakes_are_one_sentence(content, sentence, tmp_path):
    (tmp_path / "rows.json").write_bytes(content)
    with pytest.raises(UserError, match=sentence) as refusal:
        list(read_objects(tmp_path / "rows.json"))
    assert "\n" not in str(refusal.value)


def test_an_object_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MAX_OBJECT", 2**16)
    monkeypatch.setattr(reader, "BLOCK", 2**12)
    (tmp_path / "rows.json").write_text(json.dumps([{"a": "x" * 2**20}]))
    with pytest.raises(UserError, match=r"not complete after 0 MB; write smaller ones, one a line"):
        list(read_objects(tmp_path / "rows.json"))
