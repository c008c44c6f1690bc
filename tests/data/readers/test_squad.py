"""SQuAD's JSON, versions 1.1 and 2.0."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from headwise.data.read import read_records
from headwise.errors import UserError


def squad(*questions: dict[str, Any], context: str = "The cat\tsat\non the mat.", title: str = "Cats") -> str:
    paragraph = {"context": context, "qas": list(questions)}
    return json.dumps({"version": "v2.0", "data": [{"title": title, "paragraphs": [paragraph]}]})


def ask(question: str, *answers: str, **more: Any) -> dict[str, Any]:
    return {"id": "1", "question": question, "answers": [{"text": text, "answer_start": 0} for text in answers], **more}


def test_a_pair_for_each_different_answer(read):
    source = "Who sat?\tThe cat sat on the mat."
    text = squad(ask("Who sat?", "cat", "The cat", "cat", "cat\tsat"))
    assert read("a.json", text, "squad") == [(source, "cat"), (source, "The cat"), (source, "cat sat")]


def test_questions_without_an_answer_in_the_text_are_left_out_and_counted(read, caplog):
    text = squad(ask("a", "cat"), ask("b", is_impossible=True), ask("c", "dog"), ask("d", "mat", is_impossible=True))
    with caplog.at_level(logging.WARNING):
        assert [answer for _, answer in read("a.json", text, "squad")] == ["cat"]
    assert "3 of 4 questions have no answer in their text" in caplog.text


def test_the_group_is_the_title_or_the_paragraph(tmp_path: Path):
    path = tmp_path / "a.json"
    for title, group in (("Cats", "Cats"), ("", "The cat sat on the mat.")):
        path.write_text(squad(ask("a", "cat"), title=title))
        assert [record.group for record in read_records((path,), "squad")] == [group]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON in UTF-8"),
        (b'{"data": "\xff"}', "is not JSON in UTF-8"),
        ("[]", "is no SQuAD"),
        ('{"data": 1}', "is no SQuAD"),
        ('{"data": [1]}', 'article 1: there is no list "paragraphs"'),
        (squad({"question": "a"}), 'question 1: there is no list "answers"'),
        (squad(ask("", "cat")), 'question 1: there is no text "question"'),
        (
            squad(ask("a", "cat"), {"question": "b", "answers": [{"texts": "cat"}]}),
            'question 2: there is no text "text"',
        ),
        (squad(ask("a\ud800", "cat")), r"\\ud800 is half of a character"),
        (squad(ask("a", is_impossible=True)), "has no pairs"),
    ],
)
def test_errors_name_the_place(read, text, complaint):
    with pytest.raises(UserError, match=rf"a.json.*{complaint}"):
        read("a.json", text, "squad")


def test_a_file_that_is_too_large_is_refused(read, monkeypatch):
    monkeypatch.setattr("headwise.data.readers.squad.MAX_JSON", 64)
    with pytest.raises(UserError, match=r"a.json: is larger than"):
        read("a.json", squad(ask("a", "cat")), "squad")
