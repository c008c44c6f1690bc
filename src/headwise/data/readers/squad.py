"""SQuAD's JSON, versions 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): questions on paragraphs, answers as spans."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwise.data.files import open_text
from headwise.data.readers.base import ReadOptions, Record
from headwise.data.readers.jsonl import check_surrogates
from headwise.errors import UserError
from headwise.text.paired import SEPARATOR

log = logging.getLogger(__name__)

MAX_JSON = 2**30  # bytes: the whole file is parsed at a time


def read_squad(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read a record for each different answer: question TAB paragraph -> answer; the group is the title.

    Questions without an answer in their paragraph (SQuAD 2.0) are left out, with a warning that counts them.
    """
    left_out = number = 0
    for index, article in enumerate(_load_articles(path), 1):
        title = article.get("title") if isinstance(article, dict) else None
        for paragraph in _get_list(path, article, "paragraphs", f"article {index}"):
            place = f"article {index}"
            context = _get_text(path, paragraph, "context", place)
            for question in _get_list(path, paragraph, "qas", place):
                number += 1
                place = f"question {number}"
                source = SEPARATOR.join((_get_text(path, question, "question", place), context))
                answers = [] if question.get("is_impossible") else _get_list(path, question, "answers", place)
                texts = dict.fromkeys(_get_text(path, answer, "text", place) for answer in answers)
                answered = [text for text in texts if text in context]
                left_out += not answered
                yield from (Record(number, source, text, str(title or context)) for text in answered)
    if left_out:
        log.warning("%s: %d of %d questions have no answer in their text and are left out", path, left_out, number)


def _load_articles(path: Path) -> list[Any]:
    with open_text(path) as file:
        content = file.read(MAX_JSON)
        if len(content) == MAX_JSON:
            raise UserError(f"{path}: is larger than {MAX_JSON // 2**20} MB; split it, or use the format 'jsonl'")
    try:
        document = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise UserError(f"{path}: is not JSON in UTF-8; copy it again, or set another data.format") from None
    if rb"\ud" in content or rb"\uD" in content:
        check_surrogates(document, str(path))
    articles = document.get("data") if isinstance(document, dict) else None
    if not isinstance(articles, list):
        raise UserError(f'{path}: is no SQuAD; its JSON has articles under the key "data", and paragraphs in each')
    return articles


def _get_list(path: Path, item: Any, key: str, place: str) -> list[Any]:
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, list):
        raise UserError(f'{path}, {place}: there is no list "{key}"; write it as SQuAD does')
    return value


def _get_text(path: Path, item: Any, key: str, place: str) -> str:
    """A text in one line: a tab or line break in it becomes a space."""
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise UserError(f'{path}, {place}: there is no text "{key}"; write it as SQuAD does')
    return value.replace("\t", " ").replace("\n", " ").strip()
