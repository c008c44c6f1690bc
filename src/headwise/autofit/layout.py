"""The layout of a text file, from its first lines: tagged words, a table, or plain text."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headwise.autofit.columns import TEXT_NAMES, Column, find_header, is_number, matches

SEPARATORS = ("\t", ",", ";", "|")
SAME_WIDTH = 0.98  # share of the rows of a table that have as many cells as most
_SENTENCE_END = re.compile(r"[.!?…。！？][\"')\]»”’]*$")
_DOCUMENT = re.compile(r"-DOCSTART-\s")

Kind = Literal["conllu", "conll", "tsv", "csv", "lines", "text"]


@dataclass(frozen=True)
class Layout:
    """The layout of a text file, with the separator of a table and the reason."""

    kind: Kind
    reason: str
    separator: str = ""
    quoted: bool = True  # cells of CSV may be quoted; False: quotes are text


def find_layout(lines: Sequence[str], complete: bool = True) -> Layout:
    """The layout of a file that begins with these lines; `complete` if there are no others.

    >>> find_layout(["The DT", "dog NN", "barks VBZ", "", "A DT", "dog NN", ""]).kind
    'conll'
    >>> find_layout(["a dog\\tein Hund", "a cat\\teine Katze"]).kind
    'tsv'
    """
    filled = [line for line in lines if line.strip()]
    if _is_conllu(filled):
        return Layout("conllu", "ten columns with tabs between them, and numbered words")
    if reason := _describe_conll(lines, filled):
        return Layout("conll", reason)
    for separator in SEPARATORS:
        if reason := _describe_table(lines, separator, complete):
            if separator == "\t" and not _is_quoted(filled):
                return Layout("tsv", reason, separator)
            return Layout("csv", reason, separator, has_matching_quotes(lines, separator, complete))
    return _find_column_layout(lines, filled, complete) or _find_text_layout(lines, filled)


def _is_conllu(filled: Sequence[str]) -> bool:
    words = [line.split("\t") for line in filled if not line.startswith("#")]
    return bool(words) and all(len(cells) == 10 and re.fullmatch(r"\d+([-.]\d+)?", cells[0]) for cells in words[:200])


def _describe_conll(lines: Sequence[str], filled: Sequence[str]) -> str:
    """The reason why a file has a word and its tags in each line and blank lines between sentences; empty if not."""
    words = [line.split() for line in filled if not _DOCUMENT.match(line) and not line.startswith("# ")]
    if len(words) < 4 or len(lines) - len(filled) < 1:
        return ""
    (width, count), *_ = Counter(map(len, words)).most_common(1)
    if not 2 <= width <= 12 or count < SAME_WIDTH * len(words):
        return ""
    sentences = " ".join("x" if line.strip() else "|" for line in lines).replace(" ", "").strip("|").split("|")
    lengths = [len(sentence) for sentence in sentences if sentence]
    tags = Column("", [cells[-1] for cells in words])
    short_tags = max(map(len, tags.counts)) <= 24 and len(tags.counts) <= min(400, len(words) / 2 + 1)
    if max(lengths, default=0) < 2 or len(lengths) < 2 or tags.numeric or not short_tags:
        return ""
    return (
        f"{width} columns in each line, the last with {len(tags.counts)} different tags, "
        "and blank lines between sentences"
    )


def _describe_table(lines: Sequence[str], separator: str, complete: bool) -> str:
    """The reason why a file is a table with this separator; empty if it is none."""
    rows = split_rows(lines, separator, complete)
    if not rows:
        return ""
    (width, count), *_ = Counter(map(len, rows)).most_common(1)
    if width < 2 or count < SAME_WIDTH * len(rows) or len(rows[0]) != width:
        return ""
    name = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "vertical bar"}[separator]
    reason = f"{width} columns with a {name} between them"
    if separator == "\t":
        return reason
    # Prose has commas and semicolons, too: a table has a header, quotes, numbers or labels besides.
    quoted = sum(line.count('"') for line in lines) >= len(rows) and _is_quoted(
        [line for line in lines if line.strip()]
    )
    header = find_header(rows)
    body = rows[header.present :]
    columns = [Column(number, [row[number] for row in body if len(row) == width]) for number in range(width)]
    typed = any(column.role in ("number", "label", "identifier") for column in columns)
    if not header.present and sum(column.role not in ("date", "empty") for column in columns) < 2:
        return ""  # lines that begin with a date, such as those of a log
    spaced = separator != "," or not _follows_prose(lines, separator)
    named = header.present and header.sure
    return reason if quoted or named or (typed and len(rows) >= 20) or (spaced and (typed or len(rows) >= 20)) else ""


def _follows_prose(lines: Sequence[str], separator: str) -> bool:
    """Whether a space follows most separators, as in prose."""
    total = sum(line.count(separator) for line in lines)
    return sum(line.count(separator + " ") for line in lines) > total / 2


def _is_quoted(filled: Sequence[str]) -> bool:
    """Whether cells are quoted as in CSV: quotes next to separators or at the ends of lines."""
    quoted = re.compile(r'(^|[\t,;|])"([^"]|"")*("([\t,;|]|$)|$)')
    return sum(bool(quoted.search(line)) for line in filled) >= max(1, len(filled) / 50)


def has_quoted_cells(filled: Sequence[str]) -> bool:
    """Whether most lines have a cell that a quote opens and a quote closes."""
    closed = re.compile(r'(^|[\t,;|])"([^"]|"")*"\s*([\t,;|]|$)')
    return sum(bool(closed.search(line)) for line in filled) > len(filled) / 2


def split_rows(lines: Sequence[str], separator: str, complete: bool = True) -> list[list[str]]:
    """The rows of a table, without the last one where it may go on. Quotes that do not match are text, if most
    lines have none around cells and all have as many cells; otherwise there are no rows."""
    filled = [line for line in lines if line.strip()]
    if separator == "\t" and not _is_quoted(filled):
        return [line.split(separator) for line in filled]
    if has_matching_quotes(lines, separator, complete):
        return parse_rows(lines, separator)
    rows = [line.split(separator) for line in filled]
    return rows if len(set(map(len, rows))) == 1 and not has_quoted_cells(filled) else []


def has_matching_quotes(lines: Sequence[str], separator: str, complete: bool = True) -> bool:
    """Whether the quotes of a table are those of CSV: around cells, and doubled inside of them."""
    try:
        for _ in csv.reader((line + "\n" for line in lines), delimiter=separator, strict=True):
            pass
    except csv.Error as error:
        return "unexpected end" in str(error) and not complete
    return True


def parse_rows(lines: Sequence[str], separator: str, strict: bool = True) -> list[list[str]]:
    """The rows of CSV up to the first mistake; without `strict`, quotes that are not doubled are none."""
    rows: list[list[str]] = []
    try:
        reader = csv.reader((line + "\n" for line in lines), delimiter=separator, strict=strict)
        rows.extend(row for row in reader if row)
    except csv.Error:  # the last row goes on after these lines
        pass
    return rows


def _find_column_layout(lines: Sequence[str], filled: Sequence[str], complete: bool) -> Layout | None:
    """A table of one column, whose name is in the first line."""
    name = filled[0].strip().strip('"') if filled else ""
    if len(filled) < 3 or not matches(TEXT_NAMES, name):
        return None
    reason = f"one column, '{name}'"
    if not any("\t" in line for line in filled) and not _is_quoted(filled):
        return Layout("tsv", reason, "\t")
    single = has_matching_quotes(lines, ",", complete) and all(len(row) == 1 for row in parse_rows(lines, ","))
    return Layout("csv", reason, ",") if single else None


def _find_text_layout(lines: Sequence[str], filled: Sequence[str]) -> Layout:
    """One text for the whole file, or one for each line."""
    blank = len(lines) - len(filled)
    ends = sum(bool(_SENTENCE_END.search(line.rstrip())) for line in filled)
    lengths = sorted(map(len, filled))
    median = lengths[len(lengths) // 2] if lengths else 0
    wrapped = 40 <= median <= 120 and lengths[int(0.95 * len(lengths))] <= 1.35 * median and ends < 0.5 * len(filled)
    if len(filled) >= 10 and blank <= len(filled) / 50 and ends >= 0.8 * len(filled) and not wrapped:
        return Layout("lines", "almost every line ends as a sentence does: one text a line")
    if len(filled) >= 10 and median > 400 and not wrapped:
        return Layout("lines", f"lines of {median} characters: one text a line")
    return Layout("text", "no table, no tags: one text")


def looks_numeric(lines: Sequence[str]) -> bool:
    """Whether every line is a number, as in a file of targets aligned with a file of texts."""
    filled = [line.strip() for line in lines if line.strip()]
    return bool(filled) and all(map(is_number, filled))
