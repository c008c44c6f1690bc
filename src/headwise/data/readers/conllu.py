"""CoNLL-U, the format of Universal Dependencies: ten columns a word, a blank line after each sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from headwise.data.files import read_lines
from headwise.data.readers.base import ReadOptions, Record
from headwise.errors import UserError
from headwise.text.brackets import write_brackets

Rows = list[list[str]]  # ten columns of each word

_ID, _FORM, _HEAD = 0, 1, 6
_TAG_COLUMNS = {"upos": 3, "xpos": 4, "deprel": 7}
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")
_RANGE_OR_EMPTY = re.compile(r"\d+[-.]\d+")  # multiword ranges, 1-2, and empty nodes, 1.1


def read_conllu(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the words of each sentence and their tags, both joined by spaces; the group is the document, if there are
    comments `# newdoc`."""
    return _read_sentences(path, lambda rows: (_join(rows, _FORM), _join(rows, _TAG_COLUMNS[options.column])))


def read_conllu_trees(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read dependency trees: as `read_conllu`, with the number of its head after each word, `dogs|2`."""

    def write(rows: Rows) -> tuple[str, str]:
        words = (f"{'_'.join(row[_FORM].split())}|{row[_HEAD]}" for row in rows)
        return " ".join(words), _join(rows, _TAG_COLUMNS[options.column])

    return _read_sentences(path, write)


def read_conllu_brackets(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the words of each sentence and its dependency tree as a bracketed sequence (`headwise.text.brackets`)."""

    def write(rows: Rows) -> tuple[str, str]:
        heads = [int(row[_HEAD]) if row[_HEAD].isdecimal() else -1 for row in rows]
        return _join(rows, _FORM), write_brackets(heads, [row[_TAG_COLUMNS["deprel"]] for row in rows])

    return _read_sentences(path, write)


def _read_sentences(path: Path, write: Callable[[Rows], tuple[str, str]]) -> Iterator[Record]:
    """Read sentences. Multiword ranges repeat the words after them, and empty nodes have no text: both are skipped."""
    rows: Rows = []
    first = 1
    document: str | None = ""  # None: it has no name, and its first sentence stands for it
    for number, line in read_lines(path):
        if not line.strip():
            yield (record := _build_record(path, first, rows, write, document))
            document = record.group
            rows, first = [], number + 1
        elif _NEW_DOCUMENT.match(line):
            document = line.partition("=")[2].strip() or None
        elif not line.startswith("#"):
            fields = line.split("\t")
            if len(fields) != 10 or not all(map(str.strip, fields)):
                raise UserError(f"{path}, line {number}: not CoNLL-U; a word is ten columns with tabs between them")
            if _RANGE_OR_EMPTY.fullmatch(fields[_ID]):
                continue
            if fields[_ID] != str(len(rows) + 1):
                raise UserError(
                    f"{path}, line {number}: word {fields[_ID]:.20} is where word {len(rows) + 1} is expected; "
                    "number the words of a sentence from 1 and end it with an empty line"
                )
            rows.append(fields)
    yield _build_record(path, first, rows, write, document)


def _build_record(
    path: Path, first: int, rows: Rows, write: Callable[[Rows], tuple[str, str]], document: str | None
) -> Record:
    try:
        source, target = write(rows) if rows else ("", "")
    except ValueError as error:
        raise UserError(f"{path}, line {first}: the sentence is no tree: {error}; correct its heads") from None
    return Record(first, source, target, source if document is None else document)


def _join(rows: Rows, column: int) -> str:
    """A column of all words, with spaces between them."""
    return " ".join("_".join(row[column].split()) for row in rows)
