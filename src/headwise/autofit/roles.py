"""From the columns of a table to a task: which columns are texts, which one is the target."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headwise.autofit.columns import (
    IDENTIFIER_NAMES,
    LABEL_NAMES,
    LANGUAGES,
    NUMBER_NAMES,
    SOURCE_NAMES,
    TARGET_NAMES,
    TEXT_NAMES,
    Column,
    matches,
)
from headwise.errors import UserError

# What the examples of a data set are; a task declares the one it learns from (`TaskConfig.fits`).
Shape = Literal["pairs", "labelled", "numbers", "texts", "tagged", "spans", "images", "boxes", "captions"]


LONG_TEXT = 5.0  # words of a text on average, beside which a column of single words is no text


@dataclass(frozen=True)
class Reading:
    """One way to read a table: its shape, the columns of the texts and then of the target, and the reason."""

    shape: Shape
    columns: tuple[Column, ...]
    reason: str

    @property
    def names(self) -> tuple[str | int, ...]:
        return tuple(column.name for column in self.columns)


def read_roles(columns: Sequence[Column], where: str) -> list[Reading]:
    """The ways to read a table, the most likely first."""
    texts = _order_texts([column for column in columns if column.role == "text"])
    labels = _order_targets([column for column in columns if column.role == "label"], (LABEL_NAMES, NUMBER_NAMES))
    numbers = _order_targets([column for column in columns if column.role == "number"], (NUMBER_NAMES,))
    if (labels or numbers) and any(column.mean_words >= LONG_TEXT for column in texts):  # not the names of users
        texts = [column for column in texts if column.mean_words > 1.5 or matches(TEXT_NAMES, column.name)]
    if not texts and len(labels) == 2:  # short texts that recur, such as the words of a dictionary
        texts, labels = [column for column in columns if column in labels], []
    if not texts and labels and not numbers and len(labels) == 1 and len(columns) == 1:
        texts, labels = labels, []
    if not texts:
        roles = ", ".join(f"{describe_name(column.name)}: {_PLURALS[column.role]}" for column in columns)
        raise UserError(
            f"{where}: no column has texts ({roles}), and numbers alone are not learnt from; if one has texts, name it "
            "and the target with --columns"
        )
    pair = _pair_texts(texts)
    if len(pair) == 1 and not labels and not numbers:
        _refuse_constant(columns, texts[0], where)
    readings = []
    inputs = tuple(pair) if len(pair) == 2 and not _is_source_and_target(pair) else tuple(texts[:1])
    for label in labels[:1]:
        readings.append(Reading("labelled", (*inputs, label), describe_labels(label)))
        if label.numeric:
            reason = f"{describe_name(label.name)} has {len(label.counts)} whole numbers, which may be a scale"
            readings.append(Reading("numbers", (*inputs, label), reason))
    for number in numbers[:1]:
        reason = f"{describe_name(number.name)} has {len(number.counts):,} different numbers"
        readings.append(Reading("numbers", (*inputs, number), reason))
    if len(pair) == 2:
        reason = f"{describe_name(pair[0].name)} and {describe_name(pair[1].name)} are both texts"
        reading = Reading("pairs", tuple(pair), reason)
        readings.insert(0 if _is_source_and_target(pair) else len(readings), reading)
    if len(columns) == 1 or not readings:
        readings.append(Reading("texts", tuple(texts[:1]), f"{describe_name(texts[0].name)} has texts"))
    return _prefer_named_number(readings)


def read_named(columns: Sequence[Column]) -> list[Reading]:
    """The ways to read columns that the user names: texts first, then the target."""
    *inputs, target = columns
    if not inputs:
        return [Reading("texts", (target,), "one column is named")]
    labelled = Reading("labelled", tuple(columns), describe_labels(target))
    numbers = Reading("numbers", tuple(columns), f"{describe_name(target.name)} has numbers")
    pairs = Reading("pairs", tuple(columns), f"{describe_name(target.name)} has texts")
    if target.role == "number":
        return [numbers]
    if target.role == "label":
        return [labelled, *([numbers] if target.numeric else [pairs] if len(inputs) == 1 else [])]
    return [pairs, labelled] if len(inputs) == 1 else [labelled]


def describe_name(name: str | int) -> str:
    """
    >>> describe_name("label"), describe_name(2)
    ("column 'label'", 'column 2')
    """
    return f"column '{name}'" if isinstance(name, str) else f"column {name}"


def describe_labels(column: Column) -> str:
    count = len(column.counts)
    return f"{describe_name(column.name)} has {count:,} different labels in {len(column.filled):,} rows"


_PLURALS = {
    "empty": "blank",
    "constant": "always the same",
    "identifier": "identifiers",
    "date": "dates",
    "number": "numbers",
    "label": "labels",
    "text": "texts",
}


def _order_texts(texts: list[Column]) -> list[Column]:
    """Texts with usual names first, then the others; as in the file among themselves."""
    usual = [column for column in texts if matches(TEXT_NAMES, column.name)]
    likely = [column for column in texts if not matches(IDENTIFIER_NAMES, column.name) and column not in usual]
    return usual + likely + [column for column in texts if column not in usual and column not in likely]


def _refuse_constant(columns: Sequence[Column], text: Column, where: str) -> None:
    """Refuse texts with one other column that has one value: labels of which the other ones are missing."""
    constant = [column for column in columns if column.role == "constant"]
    named = [column for column in constant if matches(LABEL_NAMES, column.name)] or (
        constant if len(columns) == 2 else []
    )
    if named:
        value = next(iter(named[0].counts))
        raise UserError(
            f"{where}: {describe_name(named[0].name)} is '{value[:40]}' in all rows: nothing to tell apart; "
            f"add rows with other labels, or read the texts alone: --columns {shlex.quote(str(text.name))}"
        )


def _order_targets(columns: list[Column], names: Sequence[re.Pattern[str]]) -> list[Column]:
    """Targets with usual names first; of the others the last column, where targets are by habit; then dates, users and
    the like."""
    usual = [column for pattern in names for column in columns if matches(pattern, column.name)]
    usual = list({id(column): column for column in usual}.values())
    others = [column for column in reversed(columns) if column not in usual]
    return usual + sorted(others, key=lambda column: matches(IDENTIFIER_NAMES, column.name))


def _pair_texts(texts: list[Column]) -> list[Column]:
    """Two columns that belong together: a source and its target, two languages, numbered kin, or the only two."""
    sources = [column for column in texts if matches(SOURCE_NAMES, column.name)]
    targets = [column for column in texts if matches(TARGET_NAMES, column.name)]
    if sources and len(targets) == 1 and targets[0] not in sources:
        return [max(sources, key=lambda column: len(column.filled)), targets[0]]
    languages = [column for column in texts if matches(LANGUAGES, column.name)]
    if len(languages) == 2:
        return languages
    unnamed = all(isinstance(column.name, int) for column in texts)  # of more columns, further ones are remarks
    return texts[:2] if len(texts) == 2 or unnamed else texts[:1]


def _is_source_and_target(pair: Sequence[Column]) -> bool:
    """Whether the names say that the second text is written from the first."""
    if len(pair) != 2:
        return False
    first, second = pair
    languages = matches(LANGUAGES, first.name) and matches(LANGUAGES, second.name)
    return languages or (matches(SOURCE_NAMES, first.name) and matches(TARGET_NAMES, second.name))


def _prefer_named_number(readings: list[Reading]) -> list[Reading]:
    """A number with a usual name, such as `score`, before labels without one, such as a genre."""
    by_shape = {reading.shape: reading for reading in reversed(readings)}
    labelled, numbers = by_shape.get("labelled"), by_shape.get("numbers")
    if not labelled or not numbers or labelled.columns[-1] is numbers.columns[-1]:
        return readings
    if matches(LABEL_NAMES, labelled.names[-1]) or not matches(NUMBER_NAMES, numbers.names[-1]):
        return readings
    return sorted(readings, key=lambda reading: reading is not numbers)
