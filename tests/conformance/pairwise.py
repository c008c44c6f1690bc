"""A covering set: few combinations in which every two values meet at least once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]
Pair = tuple[str, Any, str, Any]


def build_covering_rows(
    choices: Mapping[str, Sequence[Any]], allowed: Callable[[Row], bool] = lambda row: True
) -> list[Row]:
    """Rows of one value a key such that every allowed pair of values stands in one; greedy, hence nearly minimal.

    `allowed` may be asked about rows that are not yet complete.
    """
    missing = {pair: None for pair in _list_all_pairs(choices) if allowed({pair[0]: pair[1], pair[2]: pair[3]})}
    rows = []
    while missing:
        first, one, second, two = next(iter(missing))
        row: Row = {first: one, second: two}
        for key, values in choices.items():
            if key not in row:
                fitting = [value for value in values if allowed({**row, key: value})]
                row[key] = max(fitting, key=lambda value, key=key: _count_new_pairs(row, key, value, missing))  # type: ignore[misc]
        row = {key: row[key] for key in choices}
        for pair in list_pairs(row):
            missing.pop(pair, None)
        rows.append(row)
    return rows


def list_pairs(row: Row) -> list[Pair]:
    """All pairs of values in one row."""
    return [(a, row[a], b, row[b]) for a, b in combinations(row, 2)]


def _list_all_pairs(choices: Mapping[str, Sequence[Any]]) -> list[Pair]:
    return [(a, one, b, two) for a, b in combinations(choices, 2) for one, two in product(choices[a], choices[b])]


def _count_new_pairs(row: Row, key: str, value: Any, missing: Mapping[Pair, None]) -> int:
    """How many missing pairs a value adds to an unfinished row."""
    met = ({(key, value, other, row[other]), (other, row[other], key, value)} for other in row)
    return sum(not missing.keys().isdisjoint(pair) for pair in met)
