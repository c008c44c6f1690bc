"""Differences between the settings of runs."""

from collections.abc import Mapping, Sequence
from typing import Any

Settings = Mapping[str, Any]


def find_differences(configs: Sequence[Settings]) -> dict[str, list[Any]]:
    """Dotted keys whose values are not all the same, each with the value of every config; None if it has none.

    >>> find_differences([{"model": {"width": 8, "depth": 1}}, {"model": {"width": 9, "depth": 1}, "seed": 1}])
    {'model.width': [8, 9], 'seed': [None, 1]}
    """
    flattened = [flatten(config) for config in configs]
    keys = sorted({key for config in flattened for key in config})
    values = {key: [config.get(key) for config in flattened] for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def flatten(table: Settings, prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys.

    >>> flatten({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
