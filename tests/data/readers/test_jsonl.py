"""JSON lines: nested keys, lists, numbers, and the error of each mistake."""

from __future__ import annotations

import json

import pytest

from headwise.errors import UserError

QUESTION = {"q": "Who?", "p": {"context": "the cat"}, "answers": {"text": ["cat", "the cat"], "start": [4, 0]}}


def dump(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_nested_keys_and_a_pair_for_each_answer(read):
    text = dump(QUESTION, {**QUESTION, "answers": {"text": []}})
    expected = [("Who?\tthe cat", "cat"), ("Who?\tthe cat", "the cat")]
    assert read("a.jsonl", text, "jsonl", columns=("q", "p.context", "answers.text")) == expected
    listed = dump({**QUESTION, "answers": [{"text": "cat"}]})
    assert read("a.jsonl", listed, "jsonl", columns=("q", "p.context", "answers.text")) == expected[:1]


def test_lists_of_words_and_tags(read):
    text = dump({"words": ["New York", "is", 7], "tags": ["B", "O", "O"]})
    assert read("a.jsonl", text, "jsonl", columns=("words", "tags"), one_to_one=True) == [("New_York is 7", "B O O")]
    with pytest.raises(UserError, match=r"a.jsonl, line 1: 3 words but 1 tags"):
        read(
            "a.jsonl",
            dump({"words": ["a", "b", "c"], "tags": ["O"]}),
            "jsonl",
            columns=("words", "tags"),
            one_to_one=True,
        )


def test_values_are_written_out(read):
    text = dump(*({"t": "x\ny é", "l": value} for value in (1, 2.5, True, False, "a"))) + "\n\n"
    labels = [label for _, label in read("a.jsonl", text, "jsonl", columns=("t", "l"))]
    assert labels == ["1", "2.5", "true", "false", "a"]
    assert read("a.jsonl", dump({"a.b": "c"}), "jsonl", columns=("a.b",)) == [("", "c")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (dump({"text": "a", "lable": "b"}), "line 1: there is no key 'label'; did you mean lable"),
        (dump({"text": "a", "label": None}), "line 1: the target is empty"),
        (dump({"text": "a", "label": float("nan")}), "line 1: the target is empty"),
        (
            dump({"text": "a", "label": {"en": 1}}),
            "line 1: column 'label' has keys of its own; name one of them: label.en",
        ),
        (dump({"text": "a", "label": [[1]]}), "line 1: column 'label' is a list of lists"),
        (dump({"text": "a", "label": "b"}) + "{\n", r"line 2: not JSON \(expecting property name"),
        ("[1]\n", "line 1: not an object"),
        ("{}\n", "line 1: there is no key 'text'; the object is empty"),
        ("[" * 100_000, r"line 1: not JSON \(nested too deeply\)"),
        ('{"text": "\\ud800", "label": "a"}', r"line 1: \\ud800 is half of a character"),
        ('{"text": 1' + "0" * 5000 + "}", r"line 1: not JSON \(a number with too many digits\)"),
        (b'{"text": "caf\xe9"}', r"line 1: not UTF-8 \(byte 14\)"),
    ],
)
def test_errors_name_the_file_and_the_line(read, line, complaint):
    with pytest.raises(UserError, match=rf"a.jsonl, {complaint}"):
        read("a.jsonl", line, "jsonl", columns=("text", "label"))


def test_without_columns_the_error_lists_the_keys(read):
    with pytest.raises(
        UserError, match=r"data.columns; the file has: q, p, p.context, answers, answers.text, answers.s"
    ):
        read("a.jsonl", dump(QUESTION), "jsonl")
    with pytest.raises(UserError, match="have names and no numbers"):
        read("a.jsonl", dump(QUESTION), "jsonl", columns=(1, 2))
