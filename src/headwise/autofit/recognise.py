"""Data recognition: which task a user's files are for, and how they are read, from their content."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from headwise.autofit.columns import Column, find_header
from headwise.autofit.folders import recognise_folder
from headwise.autofit.layout import find_layout, looks_numeric
from headwise.autofit.listed_images import find_image_root
from headwise.autofit.objects import recognise_objects
from headwise.autofit.recognition import Recognition, choose
from headwise.autofit.refusals import (
    refuse_archives,
    refuse_binary,
    refuse_line_ends,
    refuse_lines,
    refuse_quotes,
    refuse_ragged,
    warn_of_texts,
)
from headwise.autofit.tables import MissingColumn, recognise_table
from headwise.data.encodings import find_encoding
from headwise.data.files import open_file, open_text, read_lines
from headwise.data.readers import arrow, jsonl
from headwise.data.readers.base import ReadOptions
from headwise.data.readers.csv import read_rows
from headwise.data.readers.json import START, read_members, read_objects
from headwise.errors import UserError

SAMPLE = 5000  # rows or lines from which a file is recognised
START_BYTES = 2**16  # of a file, from which its kind is told
MAGIC = {  # the first bytes of files that are not text
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",  # the continuation mark of a stream
    b"PK\x03\x04": "labelled-zip",
}
_CONTAINER = re.compile(r'"(data|rows|examples|records|items|annotations|paragraphs)"\s*:\s*\[')


def recognise(files: Sequence[str | Path], columns: Sequence[str | int] = (), shape: str = "") -> Recognition:
    """Recognise the data in one file or folder, in two aligned files, or in several files of one kind.

    `columns` are the user's: names, or numbers from 1 in a file without a header; the last one is the target. `shape`
    is that of the task the user asks for; empty: any.
    """
    paths = [Path(file).expanduser() for file in files]
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder; check the path")
    first, *others = paths
    names = tuple(int(column) if str(column).isdecimal() else column for column in columns)
    if first.is_dir():
        if others:
            raise UserError(f"{first}: is a folder; name one folder alone, or files")
        return choose(recognise_folder(first, recognise_file, _recognise_aligned, names, shape), shape, first)
    if len(paths) == 2 and not names:
        aligned = _recognise_aligned(paths[0], paths[1])
        if aligned is not None:
            return _name_encoding(choose(aligned, shape, first), paths)
    found = recognise_file(first, names, shape)
    found = replace(found, data={**found.data, "train": [str(path) for path in paths]}) if others else found
    return _name_encoding(found, paths)


def _name_encoding(found: Recognition, paths: Sequence[Path]) -> Recognition:
    """Say where a file is not in UTF-8."""
    encodings = set[str]()
    for path in paths:
        with open_file(path) as file:
            encodings.add(find_encoding(file.read(START_BYTES)).upper())
    named = " and ".join(sorted(encodings - {""}))
    return replace(found, reason=f"{found.reason}; read as {named}, as its byte-order mark says") if named else found


def recognise_file(path: Path, columns: Sequence[str | int] = (), shape: str = "") -> Recognition:
    """Recognise a file by its first bytes and lines."""
    with open_file(path) as file:
        start = file.read(START_BYTES)
    if not start.strip():
        raise UserError(f"{path}: is empty; name a file with examples to learn from")
    refuse_binary(path, start)
    refuse_line_ends(path, start)
    format = next((format for magic, format in MAGIC.items() if start.startswith(magic)), "")
    if format == "labelled-zip":
        refuse_archives(path)
        reason = "a zip archive with a file of texts for each label"
        return choose(Recognition("labelled", {"train": [str(path)], "format": format}, reason), shape, path)
    if format:
        return recognise_objects(path, format, arrow.read_objects(path), columns, shape)
    json_kind = _find_json(path)
    if json_kind == "json":
        return _recognise_json(path, columns, shape)
    if json_kind == "jsonl":
        return recognise_objects(path, "jsonl", (row for _, row in jsonl.read_objects(path)), columns, shape)
    lines = [line for _, line in islice(read_lines(path), SAMPLE)]
    refuse_lines(path, lines)
    return _recognise_lines(path, lines, columns, shape)


def _recognise_lines(path: Path, lines: Sequence[str], columns: Sequence[str | int], shape: str) -> Recognition:
    """Recognise a file of lines: tagged words, a table or plain text."""
    layout = find_layout(lines, complete=len(lines) < SAMPLE)
    data: dict[str, Any] = {"train": [str(path)], "format": layout.kind}
    if layout.kind in ("conllu", "conll"):
        return choose(Recognition("tagged", data, layout.reason), shape, path)
    if layout.kind in ("lines", "text"):
        refuse_quotes(path, lines)
        refuse_ragged(path, lines)
        if columns:
            raise MissingColumn(path, f"there is no column {columns[-1]}, as this file is no table ({layout.reason})")
        warnings = warn_of_texts(path, lines)
        return choose(Recognition("texts", data, layout.reason, warnings=warnings), shape, path)
    if layout.kind == "csv":
        data |= {"separator": layout.separator, **({} if layout.quoted else {"quoted": False})}
        options = ReadOptions(separator=layout.separator, quoted=layout.quoted)
        rows = [cells for _, cells in islice(read_rows(path, options), SAMPLE)]
    else:
        rows = [line.split("\t") for line in lines if line.strip()]
    header = find_header(rows)
    named = any(isinstance(column, str) for column in columns)
    cells = {cell.strip() for cell in rows[0]}
    if named and not header.present and not cells.intersection(map(str, columns)):
        raise MissingColumn(path, f"has no header; name its columns by their numbers, from 1 to {len(rows[0])}")
    present = named or (header.present and (header.sure or not columns))
    doubts = list[str]()
    if not header.sure and not columns:
        named_last = max((number for number, cell in enumerate(rows[0], 1) if cell.strip()), default=len(rows[0]))
        numbers = " ".join(map(str, range(1, named_last + 1)))
        looks = "is taken for a header" if header.present else "is taken for data"
        remedy = (
            f"if it is data: --columns {numbers}"
            if header.present
            else "if it is a header, name its columns: --columns"
        )
        doubts.append(f"the first row ({', '.join(rows[0])[:60]}) {looks}, since {header.reason}; {remedy}")
    if present and (named or not columns):
        names: list[str | int] = [cell.strip() for cell in rows[0]]
    else:
        names = list(range(1, len(rows[0]) + 1))
        data |= {"header": True} if present else {}
    rows = rows[present:]
    table = [Column(name, [row[index] if index < len(row) else "" for row in rows]) for index, name in enumerate(names)]
    return recognise_table(path, data, table, columns, shape, layout.reason, doubts)


def _recognise_aligned(first: Path, second: Path) -> Recognition | None:
    """Two text files aligned line by line: pairs, texts with labels or numbers, or words with tags; None if they are
    two files of one other kind."""
    samples = [[line for _, line in islice(read_lines(path), SAMPLE)] for path in (first, second)]
    kinds = [find_layout(sample, complete=len(sample) < SAMPLE).kind for sample in samples]
    if any(kind in ("conllu", "csv") for kind in kinds) or all(kind in ("tsv", "conll") for kind in kinds):
        return None
    if len(samples[0]) != len(samples[1]):
        counts = " and ".join(f"{len(sample):,}" for sample in samples)
        raise UserError(
            f"{first} and {second}: have {counts} lines, so they are not aligned line by line; name one file, "
            "or two with as many lines"
        )
    texts, targets = samples
    data: dict[str, Any] = {"train": [str(first), str(second)]}
    target = Column(2, targets)
    words = [(len(left.split()), len(right.split())) for left, right in zip(texts, targets, strict=True)]
    tags = Column(2, [tag for line in targets for tag in line.split()])
    if looks_numeric(targets) and target.role == "number":
        return Recognition("numbers", data, "two aligned files, the second with numbers")
    if target.role == "label":
        return Recognition("labelled", data, f"two aligned files, the second with {len(target.counts)} different lines")
    vocabulary = {word for line in texts for word in line.split()}
    tagged = all(left == right for left, right in words) and max(left for left, _ in words) > 1
    if tagged and tags.role == "label" and 2 * len(tags.counts) <= len(vocabulary):
        reason = f"two aligned files, the second with one of {len(tags.counts)} tags for each word of the first"
        return Recognition("tagged", data, reason)
    return Recognition("pairs", data, "two files aligned line by line")


def _recognise_json(path: Path, columns: Sequence[str | int], shape: str) -> Recognition:
    """A JSON file that is one value: a list of objects, alone or under a key; SQuAD's questions, or COCO's boxes."""
    first, listed = dict[str, Any](), list[Any]()
    for member in read_members(path):
        if member.key not in first and member.listed:
            listed.append(member.value)
        first.setdefault(member.key, member.value)
    data: dict[str, Any] = {"train": [str(path)]}
    if "paragraphs" in _get_keys(first.get("data")):
        found = Recognition("spans", {**data, "format": "squad"}, "SQuAD's JSON: data, paragraphs, questions")
        return choose(found, shape, path)
    if "images" in first and "annotations" in first:
        return choose(_recognise_coco(path, first["images"], first["annotations"]), shape, path)
    if any(isinstance(value, dict) for value in listed):
        return recognise_objects(path, "json", (row for _, row in read_objects(path)), columns, shape)
    keys = ", ".join(key or "a list" for key in list(first)[:6]) or "empty"
    remedy = "write a list of objects, or one object a line (.jsonl)"
    if len(first) > 1 and all(isinstance(value, dict) and not _is_by_row(value) for value in first.values()):
        target = shlex.quote(f"{path.stem}.jsonl")
        remedy = f"write the objects one a line: jq -c '.[]' {shlex.quote(str(path))} > {target}"
    if len(listed) > 1 and len(listed) == len(first) and not any(isinstance(value, list | dict) for value in listed):
        members = ", ".join(f".{key}" for key in first)
        cells = ", ".join(f"{key}: .[{number}]" for number, key in enumerate(first))
        query = shlex.quote(f"[{members}] | transpose[] | {{{cells}}}")
        remedy = (
            f"write its columns as rows: jq -c {query} {shlex.quote(str(path))} > {shlex.quote(path.stem + '.jsonl')}"
        )
    if any(map(_is_by_row, first.values())):
        remedy = "write rows: frame.to_json(path, orient='records', lines=True)"
    raise UserError(f"{path}: is JSON of a kind that is not known ({keys}); {remedy}")


def _is_by_row(value: object) -> bool:
    """Whether a value maps the numbers of rows to cells, as `to_json` of pandas writes a column."""
    return isinstance(value, dict) and bool(value) and all(str(key).isdecimal() for key in value)


def _get_keys(value: object) -> set[str]:
    return set(value) if isinstance(value, dict) else set()


def _recognise_coco(path: Path, image: Any, annotation: Any) -> Recognition:
    """COCO's JSON with boxes or captions; its images are in the same folder or in one directly below it."""
    name = image.get("file_name") if isinstance(image, dict) else None
    root = find_image_root(path, [str(name)]) if name else None
    if root is None:
        raise UserError(
            f"{path}: is COCO's JSON, and its images ({name}) are not in {path.parent} or in a folder in or beside it; "
            "put the file where their names start"
        )
    data = {"kind": "images", "train": [str(path), str(root)]}
    if "bbox" in _get_keys(annotation):
        return Recognition("boxes", {**data, "format": "coco"}, f"boxes of images in {path.name} (COCO's JSON)")
    if "caption" in _get_keys(annotation):
        reason = f"captions of images in {path.name} (COCO's JSON)"
        return Recognition("captions", {**data, "format": "captions"}, reason)
    raise UserError(f"{path}: COCO's JSON without boxes and captions; name one of instances or captions")


def _find_json(path: Path) -> Literal["", "json", "jsonl"]:
    """Whether a file is one JSON value, or has an object in each line; a line may be longer than what is looked at."""
    with open_text(path) as file:
        start = file.read(START_BYTES).decode(errors="ignore").removeprefix("\ufeff")
    if not START.match(start):
        return ""
    lines = [line for line in start.split("\n") if line.strip()]
    if start.lstrip().startswith("["):
        if len(lines) > 1 and all(map(_is_list, lines[:2])):
            raise UserError(
                f'{path}: has a list in each line; write objects with names, such as {{"text": "...", "label": "..."}}'
            )
        return "json"
    if len(lines) == 1 and not _has_second_line(path):
        value = _parse_line(lines[0])
        one = _CONTAINER.search(lines[0]) or not isinstance(value, dict) or _has_columns(value) or _has_rows(value)
        return "json" if one else "jsonl"
    return "jsonl" if len(lines) == 1 or _is_object(lines[0]) else "json"


def _has_second_line(path: Path) -> bool:
    """Whether anything but space comes after the first line, which may be longer than what is looked at."""
    with open_text(path) as file:
        ended = False
        while block := file.read(START_BYTES):
            _, newline, rest = (b"", b"", block) if ended else block.partition(b"\n")
            ended = ended or bool(newline)
            if ended and rest.strip():
                return True
    return False


def _has_columns(value: dict[str, Any]) -> bool:
    """Whether all values are lists with as many strings or numbers, as `to_dict` writes the columns of a table."""
    columns = list(value.values())
    listed = all(
        isinstance(column, list) and all(isinstance(cell, str | int | float) for cell in column) for column in columns
    )
    return listed and len(columns) > 1 and len({len(column) for column in columns}) == 1


def _has_rows(value: dict[str, Any]) -> bool:
    """Whether the values of an object are lists of several objects, or several objects: rows, and no row itself."""
    cells = list(value.values())
    lists = [cell for cell in cells if isinstance(cell, list) and len(cell) > 1 and isinstance(cell[0], dict)]
    return len(lists) == len(cells) == 1 or (len(cells) > 2 and all(isinstance(cell, dict) for cell in cells))


def _is_object(line: str) -> bool:
    return isinstance(_parse_line(line), dict)


def _is_list(line: str) -> bool:
    return isinstance(_parse_line(line), list)


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
