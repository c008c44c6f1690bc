"""Column types of a table: numbers, labels, identifiers or texts, inferred from their values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from headwise.utils.numbers import parse_decimal

Role = Literal["empty", "constant", "identifier", "date", "number", "label", "text"]

MAX_LABELS = 500  # different values of a column of labels
ROWS_PER_LABEL = 3  # occurrences of a label on average, at least
LABEL_WORDS = 4.0  # words of a label on average, at most
MAX_SCALE = 20  # different whole numbers that are rather labels, such as stars, than measurements
IDENTIFIER_NAMES = re.compile(
    r"(.*[_ .-])?(q?id|idx|index|uid|guid|uuid|url|file|filename|path|image|img|picture|photo|asin|isbn|date|time|"
    r"timestamp)s?\d?",
    re.I,
)
LABEL_NAMES = re.compile(
    r"(.*[_ .-])?(labels?|class|classes|category|categories|target|sentiment|polarity|topic|intent|emotion|gold|tag|y)"
    r"([_ .-]?(name|id|text))?",
    re.I,
)
NUMBER_NAMES = re.compile(
    r"(.*[_ .-])?(score|rating|overall|stars?|similarity|price|value|grade|points|target|y|label)", re.I
)
TEXT_NAMES = re.compile(
    r"(.*[_ .-])?(text|sentence|content|contents|body|review|comment|tweet|message|utterance|premise|hypothesis|"
    r"question|query|passage|context|abstract|document|headline|phrase|description|caption|smiles|sequence|seq|"
    r"peptide)[_ .-]?[12ab]?",
    re.I,
)
SOURCE_NAMES = re.compile(
    r"(.*[_ .-])?(source|src|input|inputs|from|article|document|wrong|question|prompt|instruction)", re.I
)
TARGET_NAMES = re.compile(
    r"(.*[_ .-])?(target|tgt|trg|output|outputs|to|translation|summary|highlights|correct|correction|answer|response|"
    r"completion|chosen|corrected)",
    re.I,
)
LANGUAGES = re.compile(
    r"ar|bg|cs|da|de|el|en|es|et|fa|fi|fr|he|hi|hr|hu|id|it|ja|ko|lt|lv|nl|no|pl|pt|ro|ru|sk|sl|sv|th|tr|uk|vi|zh", re.I
)
WORD_NAMES = re.compile(r"words?|tokens?|lemmas?|pos|ner|iob|bio|sentence[_ .-]?(#|id|no|number)", re.I)  # a word a row
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    r"((mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?"
    rf"(\d{{1,4}}([-/.])\d{{1,2}}\4\d{{1,4}}|\d{{1,2}}[ -]({_MONTH}|\d\d)[ ,-]+\d{{2,4}}|"
    rf"{_MONTH} \d{{1,2}}(,? \d{{4}})?)"
    r"([t ,]+\d{1,2}:\d\d(:\d\d([.,]\d+)?)?)?( ?[ap]m)?( ?(z|[a-z]{3,4}|[+-]\d\d:?\d\d))?( \d{4})?",
    re.I,
)
_FIGURE = re.compile(r"[$€£¥]?\s?[+-]?\d[\d.,' ]*(\s?[$€£¥%]|\s[a-zA-Z]{1,3}\.?)?")  # with a unit, or thousands apart
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d+)?|[.,]\d+)([eE][+-]?\d+)?")
_PATTERNS = (IDENTIFIER_NAMES, LABEL_NAMES, NUMBER_NAMES, TEXT_NAMES, SOURCE_NAMES, TARGET_NAMES, LANGUAGES, WORD_NAMES)


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, or its number from 1 where there is no header, and a sample of its values."""

    name: str | int
    values: Sequence[str]

    @cached_property
    def filled(self) -> list[str]:
        """The values that are not blank."""
        return [value.strip() for value in self.values if value.strip()]

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each value occurs, most frequent first."""
        return Counter(dict(Counter(self.filled).most_common()))

    @cached_property
    def mean_words(self) -> float:
        """Words of a value on average."""
        return sum(len(value.split()) for value in self.filled) / max(len(self.filled), 1)

    @cached_property
    def numeric(self) -> bool:
        """Whether all values are numbers, up to one in a hundred."""
        return bool(self.filled) and sum(map(is_number, self.filled)) >= 0.99 * len(self.filled)

    @cached_property
    def has_figures(self) -> bool:
        """Whether all values are figures with a unit, or with thousands apart, up to one in a hundred."""
        figures = sum(bool(_FIGURE.fullmatch(value)) for value in self.filled)
        return not self.numeric and len(self.counts) > MAX_SCALE and figures >= 0.99 * len(self.filled)

    @cached_property
    def whole(self) -> bool:
        """Whether all values are whole numbers."""
        return self.numeric and all(
            number.is_integer() for value in self.counts if (number := parse_decimal(value)) is not None
        )

    @cached_property
    def repeated(self) -> bool:
        """Whether few values recur often enough to be labels."""
        distinct = len(self.counts)
        return 2 <= distinct <= MAX_LABELS and len(self.filled) >= ROWS_PER_LABEL * distinct

    @cached_property
    def role(self) -> Role:
        """What the values are, by their content; a name decides only what the content leaves open."""
        named = isinstance(self.name, str)
        if len(self.filled) <= len(self.values) / 100:
            return "empty"
        if all(map(_DATE.fullmatch, self.filled)):
            return "date"
        if len(self.counts) == 1 and len(self.filled) > 1:
            return "constant"
        unique = len(self.counts) == len(self.filled) > 1
        if self.numeric:
            if self.whole and unique and (self._counts_up or (named and matches(IDENTIFIER_NAMES, self.name))):
                return "identifier"
            return "label" if self.whole and self.repeated and len(self.counts) <= MAX_SCALE else "number"
        if self.repeated and (self.mean_words <= LABEL_WORDS or (named and matches(LABEL_NAMES, self.name))):
            return "label"
        if self.has_figures:
            return "text"
        one_word = self.mean_words == 1 and not matches(TEXT_NAMES, self.name)
        if one_word and unique and sum(map(has_digit, self.filled)) >= 0.9 * len(self.filled):
            return "identifier"
        if named and one_word and unique and matches(IDENTIFIER_NAMES, self.name):
            return "identifier"
        return "text"

    @property
    def _counts_up(self) -> bool:
        """Whether the numbers are those of the rows."""
        numbers = [number for value in self.filled if (number := parse_decimal(value)) is not None]
        return len(numbers) > 2 and all(after - before == 1 for before, after in pairwise(numbers))


def is_number(value: str) -> bool:
    """Whether a cell is a finite number.

    >>> [is_number(cell) for cell in ("3", "-2.5", "2,5", "1e3", "inf", "1.2.3", "4 kg")]
    [True, True, True, True, False, False, False]
    """
    return bool(_NUMBER.fullmatch(value)) and parse_decimal(value) is not None


def has_digit(value: str) -> bool:
    return any(character.isdigit() for character in value)


def matches(pattern: re.Pattern[str], name: str | int) -> bool:
    """Whether a column's name is one that the pattern knows; numbers are no names."""
    return isinstance(name, str) and bool(pattern.fullmatch(name.strip()))


def is_known_name(cell: str) -> bool:
    """Whether a cell is a usual name of a column.

    >>> [is_known_name(cell) for cell in ("label", "sentence1", "en", "A good film.")]
    [True, True, True, False]
    """
    return any(matches(pattern, cell) for pattern in _PATTERNS)


@dataclass(frozen=True)
class Header:
    """Whether the first row of a table has the names of its columns, how sure that is, and the reason."""

    present: bool
    sure: bool
    reason: str


def find_header(rows: Sequence[Sequence[str]]) -> Header:
    """Compare the first row of a table with the others.

    >>> find_header([["text", "label"], ["A good film .", "pos"], ["A dull film .", "neg"]]).present
    True
    """
    if len(rows) < 2:
        return Header(False, True, "there is one row")
    first, body = [cell.strip() for cell in rows[0]], rows[1:]
    below = [Column("", [row[number] for row in body if number < len(row)]) for number in range(len(first))]
    blank = [not cell and column.role == "empty" for cell, column in zip(first, below, strict=True)]
    while first and blank.pop():  # columns that a spreadsheet has added
        first.pop()
    if len(first) > 1 and all(map(is_known_name, first)) and len(set(first)) == len(first):
        return Header(True, True, f"'{first[0]}' is a usual name of a column")
    if any(not cell or is_number(cell) for cell in first) or len(set(first)) < len(first):
        named = any(map(is_known_name, first)) and all(not cell or is_known_name(cell) for cell in first)
        if not named:
            return Header(False, True, "the first row has numbers, blanks or repeated values")
    columns = [
        Column(number, [row[number] if number < len(row) else "" for row in body]) for number in range(len(first))
    ]
    differing = [cell for cell, column in zip(first, columns, strict=True) if column.numeric and not is_number(cell)]
    if differing:
        return Header(True, True, f"the column '{differing[0]}' has numbers below it")
    dated = [cell for cell, column in zip(first, columns, strict=True) if column.role == "date"]
    if dated and not _DATE.fullmatch(dated[0]):
        return Header(True, True, f"the column '{dated[0]}' has dates below it")
    recurring = [
        cell for cell, column in zip(first, columns, strict=True) if column.counts[cell] and column.role != "empty"
    ]
    if recurring:
        return Header(False, True, f"'{recurring[0][:40]}' of the first row occurs again below")
    known = [cell for cell in first if is_known_name(cell)]
    if known and 2 * len(known) >= len(first):
        return Header(True, len(known) == len(first), f"'{known[0]}' is a usual name of a column")
    texts = [(cell, column) for cell, column in zip(first, columns, strict=True) if column.role == "text"]
    if texts and all(len(cell.split()) <= 2 and column.mean_words >= 6 for cell, column in texts):
        return Header(True, False, f"'{texts[0][0][:40]}' is much shorter than the texts below it")
    labels = [(cell, column) for cell, column in zip(first, columns, strict=True) if column.role == "label"]
    if labels and len(body) >= 20:
        return Header(
            True, False, f"'{labels[0][0][:40]}' does not occur again among {len(labels[0][1].counts)} labels"
        )
    return Header(False, not known, "the first row looks like the others")
