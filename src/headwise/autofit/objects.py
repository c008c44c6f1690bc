"""Recognition of rows with named values, which may be nested: JSON lines, Parquet, Arrow."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from headwise.autofit.columns import LABEL_NAMES, Column, matches
from headwise.autofit.recognition import Recognition, choose
from headwise.autofit.roles import Shape
from headwise.autofit.tables import recognise_table
from headwise.errors import UserError

SAMPLE = 5000  # rows from which a file is recognised
METADATA = ("meta", "metadata", "_meta", "info", "provenance")  # keys of what is known about a text, no targets
CHATS = {"role": "content", "from": "value"}  # keys of a message: who says it, and what
ANSWERS = ("answers.text", "answer.text", "answers", "answer", "answer_text")


def recognise_objects(
    path: Path, format: str, rows: Iterable[Mapping[str, Any]], columns: Sequence[str | int], shape: str
) -> Recognition:
    """Recognise rows with named values: JSON lines, Parquet, Arrow."""
    sample = list(islice(rows, SAMPLE))
    if not sample:
        raise UserError(f"{path}: has no rows; name a file with examples to learn from")
    keys = list(dict.fromkeys(key for row in sample for key in row))
    data: dict[str, Any] = {"train": [str(path)], "format": format}
    flat = [_flatten(row) for row in sample]
    names = list(dict.fromkeys(key for row in flat for key in row))
    if not columns:
        _refuse_chats(path, format, sample)
        for find in (_find_spans, _find_tagged, _find_translations):
            if (found := find(names, flat)) is not None:
                return choose(Recognition(found[0], {**data, "columns": list(found[1])}, found[2]), shape, path)
    nested = [name for name in names if _is_nested(flat, name)]
    if not columns and not shape:
        _refuse_text_lists(path, flat, names, nested)
        _refuse_label_lists(path, format, flat, names, nested)
    about = [name for name in names if name.partition(".")[0].lower() in METADATA and name not in columns]
    others = [name for name in names if name not in nested and (columns or name not in about)]
    table = [Column(name, [_write(row.get(name)) for row in flat]) for name in others or names]
    reason = f"rows with the keys {', '.join(map(str, keys[:8]))}"
    warnings = [f"column '{name}' has lists, which are no label of a text, and is not read" for name in nested[:3]]
    return recognise_table(path, data, table, columns, shape, reason, [] if columns else warnings)


def _refuse_chats(path: Path, format: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse chats, of which no task reads the messages."""
    for key, value in rows[0].items():
        first = value[0] if isinstance(value, list) and value else None
        for who, what in CHATS.items():
            if isinstance(first, Mapping) and {who, what} <= first.keys():
                each = ".[] | " if format == "json" else ""  # a list of chats
                query = f"{each}{{prompt: .{key}[-2].{what}, response: .{key}[-1].{what}}}"
                command = f"jq -c {shlex.quote(query)} {shlex.quote(str(path))}"
                raise UserError(
                    f"{path}: has chats ({key}), and pairs of texts are read; write such as: {command} > pairs.jsonl"
                )


def _refuse_text_lists(
    path: Path, flat: Sequence[Mapping[str, Any]], names: Sequence[str], nested: Sequence[str]
) -> None:
    """Refuse lists of texts with one label, where no other column has texts."""
    others = [Column(name, [_write(row.get(name)) for row in flat]) for name in names if name not in nested]
    lists = [name for name in nested if "." not in name and _has_texts([row.get(name) for row in flat])]
    targets = [str(column.name) for column in others if matches(LABEL_NAMES, column.name)]
    if lists and targets and all(column.mean_words < 2 for column in others):
        query = f'.. | objects | select(has("{lists[0]}")) | {{text: .{lists[0]}[], label: .{targets[0]}}}'
        target = shlex.quote(f"{path.stem}.jsonl" if path.suffix != ".jsonl" else f"{path.stem}-rows.jsonl")
        raise UserError(
            f"{path}: column '{lists[0]}' has lists of texts; write a row for each: jq -c {shlex.quote(query)} "
            f"{shlex.quote(str(path))} > {target}"
        )


def _has_texts(values: Sequence[Any]) -> bool:
    """Whether values are lists of strings, some of them with several words."""
    cells = [cell for value in values if isinstance(value, list) for cell in value]
    return bool(cells) and all(isinstance(cell, str) for cell in cells) and any(" " in cell for cell in cells)


def _refuse_label_lists(
    path: Path, format: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str], nested: Sequence[str]
) -> None:
    """Refuse texts with several labels each, where no other column has labels."""
    lists = [name for name in nested if matches(LABEL_NAMES, name)]
    if not lists or any(matches(LABEL_NAMES, name) for name in names if name not in nested):
        return
    label = next((row[lists[0]] for row in rows if isinstance(row.get(lists[0]), list) and row[lists[0]]), [None])
    if isinstance(label[0], list | dict):
        raise UserError(
            f"{path}: column '{lists[0]}' has spans of characters, and tags are learnt one for each word; write a list "
            "of the words and one of their tags in each row"
        )
    each = ".[] | " if format == "json" else ""
    query = f"{each}.{lists[0]} |= .[0]"
    first = f"jq -c {shlex.quote(query)} {shlex.quote(str(path))} > one-label.jsonl"
    remedy = f"keep the first one, such as with: {first}" if format in ("json", "jsonl") else "keep one of them"
    raise UserError(
        f"{path}: column '{lists[0]}' has lists of labels, and a text has one label; {remedy}; "
        "or learn the texts alone: --task language-model"
    )


def _flatten(row: Mapping[str, Any], prefix: str = "", depth: int = 2) -> dict[str, Any]:
    """Values of nested objects by keys with dots, such as `answers.text`."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and depth:
            flat |= _flatten(value, f"{prefix}{key}.", depth - 1)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping) and depth:
            for below in value[0]:
                flat[f"{prefix}{key}.{below}"] = [item.get(below) for item in value if isinstance(item, Mapping)]
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _write(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _is_nested(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(isinstance(row.get(name), list | dict) for row in rows)


Found = tuple[Shape, tuple[str, ...], str]
Find = Callable[[Sequence[str], Sequence[Mapping[str, Any]]], Found | None]


def _find_spans(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Found | None:
    """Questions, texts and answers that stand in the texts."""
    answers = next((name for name in ANSWERS if name in names), "")
    texts = next((name for name in ("context", "passage", "text", "paragraph", "document") if name in names), "")
    if not answers or not texts or "question" not in names:
        return None
    first = [(_list(row.get(answers)), str(row.get(texts) or "")) for row in rows]
    inside = sum(answer[0] in text for answer, text in first if answer)
    if not inside or inside < 0.8 * sum(bool(answer) for answer, _ in first):
        return None
    return "spans", ("question", texts, answers), f"the answers ({answers}) are words of the {texts}"


def _find_tagged(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Found | None:
    """Two lists of the same length in each row: words and their tags."""
    lists = [name for name in names if all(isinstance(row.get(name), list) for row in rows)]
    for words in lists:
        for tags in reversed(lists):
            same = tags != words and all(len(row[words]) == len(row[tags]) for row in rows)
            values = Column("", [str(tag) for row in rows for tag in row[tags]]) if same else None
            strings = same and all(_is_word(word) for row in rows for word in row[words])
            if values and strings and len(values.counts) <= min(400, len(values.filled) / 2 + 1):
                kinds = len(values.counts)
                return "tagged", (words, tags), f"lists of words ({words}) and of {kinds} different tags ({tags})"
    return None


def _is_word(value: object) -> bool:
    return isinstance(value, str) and len(value.split()) <= 2  # some tokenisers leave a space in a number


def _find_translations(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Found | None:
    """`translation.en` and `translation.de`, as in Hugging Face data sets."""
    sides = [name for name in names if name.startswith("translation.")]
    if len(sides) != 2:
        return None
    return "pairs", (sides[0], sides[1]), f"two languages under one key ({', '.join(sides)})"


def _list(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [value] if isinstance(value, str) else []
