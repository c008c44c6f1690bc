"""CoNLL-U, the format of Universal Dependencies: ten columns a word, a blank line after each sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from headwise.data.files import read_lines
from headwise.data.readers.base import ReadOptions, Record
from headwise.errors import UserError

_ID, _FORM, _HEAD = 0, 1, 6
_TAG_COLUMNS = {"upos": 3, "xpos": 4, "deprel": 7}
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")
_RANGE_OR_EMPTY = re.compile(r"\d+[-.]\d+")  # multiword ranges, 1-2, and empty nodes, 1.1


def read_conllu(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read the words of each sentence and their tags, both joined by spaces; the group is the document, if there are
    comments `# newdoc`."""
    return _read_sentences(path, options.column, with_heads=False)


def read_conllu_trees(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read dependency trees: as `read_conllu`, with the number of its head after each word, `dogs|2`."""
    return _read_sentences(path, options.column, with_heads=True)


def _read_sentences(path: Path, column: str, with_heads: bool) -> Iterator[Record]:
    """Read sentences. Multiword ranges repeat the words after them, and empty nodes have no text: both are skipped."""
    words: list[str] = []
    tags: list[str] = []
    first = 1
    document: str | None = ""  # None: it has no name, and its first sentence stands for it
    for number, line in read_lines(path):
        if not line.strip():
            yield (record := _build_record(first, words, tags, document))
            document = record.group
            words, tags, first = [], [], number + 1
        elif _NEW_DOCUMENT.match(line):
            document = line.partition("=")[2].strip() or None
        elif not line.startswith("#"):
            fields = line.split("\t")
            if len(fields) != 10 or not all(map(str.strip, fields)):
                raise UserError(f"{path}, line {number}: not CoNLL-U; a word is ten columns with tabs between them")
            if _RANGE_OR_EMPTY.fullmatch(fields[_ID]):
                continue
            if fields[_ID] != str(len(words) + 1):
                raise UserError(
                    f"{path}, line {number}: word {fields[_ID]} is where word {len(words) + 1} is expected; "
                    "number the words of a sentence from 1 and end it with an empty line"
                )
            words.append("_".join(fields[_FORM].split()) + (f"|{fields[_HEAD]}" if with_heads else ""))
            tags.append("_".join(fields[_TAG_COLUMNS[column]].split()))
    yield _build_record(first, words, tags, document)


def _build_record(first: int, words: Sequence[str], tags: Sequence[str], document: str | None) -> Record:
    source = " ".join(words)
    return Record(first, source, " ".join(tags), source if document is None else document)
