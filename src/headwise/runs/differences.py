"""The settings in which runs differ."""

from collections.abc import Mapping, Sequence
from typing import Any

Settings = Mapping[str, Any]


def differences(configs: Sequence[Settings]) -> dict[str, list[Any]]:
    """Dotted keys whose values are not all the same, each with the value of every config; None where it has none.

    >>> differences([{"model": {"width": 8, "depth": 1}}, {"model": {"width": 9, "depth": 1}, "seed": 1}])
    {'model.width': [8, 9], 'seed': [None, 1]}
    """
    flat = [flattened(config) for config in configs]
    keys = sorted({key for each in flat for key in each})
    values = {key: [each.get(key) for each in flat] for key in keys}
    return {key: found for key, found in values.items() if any(value != found[0] for value in found)}


def flattened(table: Settings, start: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys.

    >>> flattened({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flattened(value, f"{start}{key}.") if isinstance(value, Mapping) else {f"{start}{key}": value}
    return found
