"""CoNLL: a word in each line with its tag in the last column, a blank line after each sentence.

CoNLL-2003 has four columns with spaces between them, and `-DOCSTART-` lines before documents (Tjong Kim Sang and De
Meulder 2003); other files have a word and a tag, with a tab or a space. CoNLL-U is another format (`conllu.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from headwise.data.files import read_lines
from headwise.data.readers.base import ReadOptions, Record
from headwise.errors import UserError

DOCUMENT = "-DOCSTART-"


def read_conll(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the words of each sentence and their tags, both joined by spaces; the group is the document.

    `options.columns` are the numbers of the word's and the tag's column; without it, the first and the last.
    """
    word_index, tag_index = _find_columns(options)
    words: list[str] = []
    tags: list[str] = []
    first, width = 1, 0
    document: str | None = ""  # its first sentence, None until it is read
    for number, line in read_lines(path):
        fields = line.rstrip("\t").split("\t") if "\t" in line.rstrip() else line.split()
        if not line.strip() or fields[0] == DOCUMENT:
            if words:
                yield (record := _build_record(first, words, tags, document))
                document = record.group
            words, tags, first = [], [], number + 1
            document = None if DOCUMENT in fields[:1] else document
            continue
        if not words and line.startswith("#") and len(fields) != (width or 2):
            continue  # a comment before a sentence
        width = width or len(fields)
        if len(fields) != width or width < 2:
            wrong = "no tag" if len(fields) < 2 else f"{len(fields)} columns, and there are {width} above"
            raise UserError(
                f"{path}, line {number}: {wrong}; write a word and its tag, and a blank line after sentences"
            )
        words.append(_pick(path, number, fields, word_index))
        tags.append(_pick(path, number, fields, tag_index))
    if words:
        yield _build_record(first, words, tags, document)


def _find_columns(options: ReadOptions) -> tuple[int, int]:
    if not options.columns:
        return 0, -1
    numbers = [column for column in options.columns if isinstance(column, int)]
    if len(numbers) != 2 or len(options.columns) != 2:
        raise UserError("data.columns: CoNLL has columns without names; give the numbers of the word and its tag")
    return numbers[0] - 1, numbers[1] - 1


def _build_record(first: int, words: Sequence[str], tags: Sequence[str], document: str | None) -> Record:
    source = " ".join(words)
    return Record(first, source, " ".join(tags), source if document is None else document)


def _pick(path: Path, number: int, fields: Sequence[str], index: int) -> str:
    if index >= len(fields):
        raise UserError(f"{path}, line {number}: has {len(fields)} columns, and column {index + 1} is read; correct it")
    if not (cell := "_".join(fields[index].split())):
        raise UserError(
            f"{path}, line {number}: column {index % len(fields) + 1} is empty; fill it in or remove the line"
        )
    return cell
