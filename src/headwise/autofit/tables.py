"""Recognition of tables: the readings of their columns, as the user asks for them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise.autofit.columns import IDENTIFIER_NAMES, LABEL_NAMES, WORD_NAMES, Column, matches
from headwise.autofit.listed_images import find_images, read_images
from headwise.autofit.recognition import Recognition, describe_shape
from headwise.autofit.roles import Reading, describe_name, read_named, read_roles
from headwise.errors import UserError

MOST = 0.9  # share of the rows with one label, from which accuracy says little
MISSING = ("na", "n/a", "nan", "null", "none", "-", "?")  # written where a label is missing


class MissingColumn(UserError):
    """A table without a column that is read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


def recognise_table(
    path: Path,
    data: dict[str, Any],
    table: Sequence[Column],
    columns: Sequence[str | int],
    shape: str,
    reason: str,
    warnings: list[str],
) -> Recognition:
    by_name = {column.name: column for column in table}
    columns = [str(name) if name not in by_name and str(name) in by_name else name for name in columns]
    for name in columns:
        if name not in by_name:
            known = ", ".join(map(str, by_name))
            raise MissingColumn(path, f"there is no {describe_name(name)}; the columns are {known}")
    _refuse_word_rows(path, table)
    chosen = [by_name[name] for name in columns]
    images = find_images(path, chosen[:1] or table) if shape in ("", "images", "captions") else None
    if images is not None:
        readings = read_images(path, table, images[0], chosen, shape)
        return _list_options(_read_listed(path, readings, reason, images[1]), readings, path, shape)
    readings = read_named(chosen) if columns else read_roles(table, str(path))
    if not columns:
        _refuse_figures(path, readings[0])
    data = {**data, **_find_incomplete(readings[0], warnings)}
    options = [
        Recognition(
            reading.shape,
            {**data, "columns": list(reading.names)},
            f"{reason}; {reading.reason}",
            warnings=(*warnings, *_warn_of_labels(reading)),
        )
        for reading in readings
    ]
    unread = [] if columns or shape else _warn_of_unread(table, readings[0])
    found = _list_options(options, readings, path, shape)
    return replace(found, warnings=(*found.warnings, *unread))


def _refuse_word_rows(path: Path, table: Sequence[Column]) -> None:
    """Refuse a table with one word and its tag a row, and the number of the sentence beside it."""
    named = [str(column.name) for column in table if matches(WORD_NAMES, column.name)]
    words = [column for column in table if column.name in named and column.mean_words == 1]
    if len(named) >= 2 and words and any(name.lower().startswith("sentence") for name in named):
        tags = [column for column in table if column.role == "label"] or [table[-1]]
        raise UserError(
            f"{path}: has one word a row ({', '.join(named)}); write '{words[0].name}', a tab and '{tags[-1].name}' a "
            "line, and an empty line after each sentence"
        )


def _read_listed(path: Path, readings: Sequence[Reading], reason: str, root: Path) -> list[Recognition]:
    """What a table of images is taken for, by each reading."""
    train = [str(path), *([] if root == path.parent else [str(root)])]
    formats = {"images": "listed", "captions": "captions"}
    return [
        Recognition(
            reading.shape,
            {"kind": "images", "format": formats[reading.shape], "train": train, "columns": list(reading.names)},
            f"{reason}; {reading.reason}",
            warnings=tuple(_warn_of_labels(reading)),
        )
        for reading in readings
    ]


def _list_options(options: list[Recognition], readings: Sequence[Reading], path: Path, shape: str) -> Recognition:
    """The first option of the shape that the user asks for; or else the first one, and the readings of other shapes."""
    if shape:
        options = [option for option in options if option.shape == shape] or _force(options, readings, shape)
        if not options:
            offered = " or ".join(dict.fromkeys(reading.shape for reading in readings))
            raise UserError(
                f"{path}: cannot be read as {describe_shape(shape)}, only as {describe_shape(offered)}; "
                "name the columns of the texts and the target with --columns"
            )
        return options[0]
    others = list({reading.shape: reading for reading in reversed(readings)}.values())[::-1]  # the first of each shape
    others = [reading for reading in others if reading.shape != readings[0].shape]
    return replace(options[0], alternatives=tuple(others))


def _force(options: list[Recognition], readings: Sequence[Reading], shape: str) -> list[Recognition]:
    """Read labels as texts, or texts as labels, where the user asks for it."""
    swappable = {"pairs": ("labelled",), "labelled": ("pairs", "numbers"), "texts": ("pairs", "labelled", "numbers")}
    for option in options:
        if option.shape in swappable.get(shape, ()):
            names = option.columns[:1] if shape == "texts" else option.columns
            data = {**option.data, "columns": list(names)}
            return [replace(option, shape=shape, data=data, reason=f"{option.reason}, read as asked")]  # type: ignore[arg-type]
    return []


def _find_incomplete(reading: Reading, warnings: list[str]) -> dict[str, Any]:
    """The setting that leaves out incomplete rows, with a warning that counts them."""
    if len(reading.columns) == 1:
        return {}
    rows = list(zip(*(column.values for column in reading.columns), strict=True))
    incomplete = sum(any(not cell.strip() for cell in row) and any(cell.strip() for cell in row) for row in rows)
    if not incomplete:
        return {}
    warnings.append(f"{incomplete:,} of {len(rows):,} rows lack a text or the target and are left out")
    return {"skip_incomplete": True}


def _refuse_figures(path: Path, reading: Reading) -> None:
    """Refuse prices, percentages and the like as a target: they are numbers, and not written as numbers."""
    *inputs, target = reading.columns
    if inputs and target.has_figures:
        example = next(iter(target.counts))
        names = " ".join(shlex.quote(str(name)) for name in reading.names)
        raise UserError(
            f"{path}: {describe_name(target.name)} has figures such as '{example}'; write plain numbers to predict "
            f"them, such as {re.sub('[^0-9.+-]', '', example)}, or take them for texts: --columns {names}"
        )


def _warn_of_unread(table: Sequence[Column], reading: Reading) -> list[str]:
    """A warning of columns that might be read as well: other texts, and other targets if none has a usual name."""
    *inputs, target = reading.columns
    texts = [column.name for column in table if column.role == "text" and column not in reading.columns]
    roles = ("label", "number") if reading.shape in ("labelled", "numbers") else ()
    likely = [column for column in table if not matches(IDENTIFIER_NAMES, column.name)]
    targets = [column.name for column in likely if column.role in roles and column is not target]
    warnings = []
    if texts:
        listed = ", ".join(map(str, texts[:5]))
        warnings.append(f"other columns have texts, too, and are not read ({listed}); to choose: --columns")
    yes_or_no = [column.name for column in table if column.role == "label" and column.counts.keys() <= {"0", "1"}]
    if inputs and len(yes_or_no) > 2 and target.name in yes_or_no:
        shown = ", ".join(map(str, yes_or_no[:8]))
        command = " ".join(shlex.quote(str(name)) for name in (*(column.name for column in inputs), yes_or_no[0]))
        warnings.append(
            f"{len(yes_or_no)} columns have 0 or 1 ({shown}): several may hold for a text, and one is learnt at a "
            f"time, here '{target.name}'; for another: --columns {command}"
        )
    elif targets and not matches(LABEL_NAMES, target.name):
        listed = ", ".join(map(str, targets[:5]))
        others = [column.name for column in inputs if column.name != targets[0]] or [target.name]
        command = " ".join(shlex.quote(str(name)) for name in (*others, targets[0]))
        warnings.append(
            f"{describe_name(target.name)} is one of several that may be the target ({listed}); to choose another: "
            f"--columns {command}"
        )
    return warnings


def _warn_of_labels(reading: Reading) -> list[str]:
    """Warnings of labels that look like sentences or like lists of labels, and of rare ones."""
    if reading.shape not in ("labelled", "images"):
        return []
    label = reading.columns[-1]
    warnings = []
    longest = max(label.counts, key=lambda value: len(value.split()))
    if len(longest.split()) > 4:
        warnings.append(
            f"the label '{longest[:60]}' looks like a sentence; check that {describe_name(label.name)} has labels"
        )
    parts = Counter(part.strip() for value in label.counts for part in re.split("[,;|]", value))
    lists = [value for value in label.counts if re.search("[,;|]", value)]
    if 1 < len(parts) <= len(label.counts) and 2 * len(lists) >= len(label.counts):
        warnings.append(f"'{lists[0]}' looks like a list of labels; each combination is taken for one label")
    missing = [value for value in label.counts if value.lower() in MISSING]
    if missing and len(missing) < len(label.counts):
        warnings.append(f"the label '{missing[0]}' may mean that there is none; if so, empty these cells")
    most, count = next(iter(label.counts.items()))
    if count > MOST * len(label.filled):
        warnings.append(f"most rows have the label '{most[:30]}', which alone is a high accuracy; look at F1 (macro)")
    rare = [value for value, count in label.counts.items() if count < 5]
    if rare:
        shown = ", ".join(f"'{value[:30]}'" for value in rare[:5])
        more = f" and {len(rare) - 5} others" if len(rare) > 5 else ""
        warnings.append(f"few examples (fewer than 5) of the label {shown}{more}; they are hardly learnt")
    return warnings
