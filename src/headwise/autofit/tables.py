"""Recognition of tables: the readings of their columns, as the user asks for them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise.autofit.columns import LABEL_NAMES, Column, matches
from headwise.autofit.recognition import Recognition, describe_shape
from headwise.autofit.roles import Reading, describe_name, read_named, read_roles
from headwise.errors import UserError


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
            raise UserError(f"{path}: there is no {describe_name(name)}; the columns are {known}")
    readings = read_named([by_name[name] for name in columns]) if columns else read_roles(table, str(path))
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
    if shape:
        options = [option for option in options if option.shape == shape] or _force(options, readings, shape)
        if not options:
            offered = " or ".join(dict.fromkeys(reading.shape for reading in readings))
            raise UserError(
                f"{path}: cannot be read as {describe_shape(shape)}, only as {describe_shape(offered)}; "
                "name the columns of the texts and the target with --columns"
            )
        return options[0]
    others = [reading for reading in readings[1:] if reading.shape != readings[0].shape]
    unread = [] if columns else _warn_of_unread(table, readings[0])
    return replace(options[0], alternatives=tuple(others), warnings=(*options[0].warnings, *unread))


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


def _warn_of_unread(table: Sequence[Column], reading: Reading) -> list[str]:
    """A warning of columns that might be read as well: other texts, and other targets if none has a usual name."""
    *inputs, target = reading.columns
    texts = [column.name for column in table if column.role == "text" and column not in reading.columns]
    roles = ("label", "number") if reading.shape in ("labelled", "numbers") else ()
    targets = [column.name for column in table if column.role in roles and column is not target]
    warnings = []
    if inputs and texts:
        listed = ", ".join(map(str, texts[:5]))
        warnings.append(f"other columns have texts, too, and are not read ({listed}); to choose: --columns")
    if targets and not matches(LABEL_NAMES, target.name):
        listed = ", ".join(map(str, targets[:5]))
        command = " ".join(shlex.quote(str(name)) for name in (*(column.name for column in inputs), targets[0]))
        warnings.append(
            f"{describe_name(target.name)} is one of several that may be the target ({listed}); to choose another: "
            f"--columns {command}"
        )
    return warnings


def _warn_of_labels(reading: Reading) -> list[str]:
    """Warnings of labels that look like sentences or like lists of labels, and of rare ones."""
    if reading.shape != "labelled":
        return []
    label = reading.columns[-1]
    warnings = []
    longest = max(label.counts, key=lambda value: len(value.split()))
    if len(longest.split()) > 4:
        warnings.append(
            f"the label '{longest[:60]}' looks like a sentence; check that {describe_name(label.name)} has labels"
        )
    parts = Counter(part.strip() for value in label.counts for part in re.split("[,;|]", value))
    if len(parts) <= len(label.counts) and len(parts) > 1 and all(re.search("[,;|]", value) for value in label.counts):
        warnings.append(
            f"'{next(iter(label.counts))}' looks like a list of labels; each combination is taken for one label"
        )
    rare = [value for value, count in label.counts.items() if count < 5]
    if rare:
        shown = ", ".join(f"'{value[:30]}'" for value in rare[:5])
        more = f" and {len(rare) - 5} others" if len(rare) > 5 else ""
        warnings.append(f"few examples (fewer than 5) of the label {shown}{more}; they are hardly learnt")
    return warnings
