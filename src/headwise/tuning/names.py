"""Dotted names of parameters and modules: match them by patterns, and summarise many of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import accumulate

from headwise.errors import UserError


def match_names(patterns: Iterable[str], names: Iterable[str], key: str) -> list[str]:
    """The names that match a pattern, in their order; a pattern without a match is an error that lists the nearest.

    >>> names = ["embed.table", "layers.1.weight", "layers.2.weight", "b.bias"]
    >>> match_names(["embed", "layers.0-1", "*.bias"], names, "")
    ['embed.table', 'layers.1.weight', 'b.bias']
    """
    names, matched = list(names), set()
    for pattern in patterns:
        regex = compile_pattern(pattern)
        if not (matches := [name for name in names if regex.fullmatch(name)]):
            raise UserError(f"{key}: nothing in the model is called '{pattern}'; {suggest_patterns(pattern, names)}")
        matched.update(matches)
    return [name for name in names if name in matched]


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern: a name and everything inside it; `*` matches anything, dots too, `0-5` these
    numbers."""
    pieces = []
    for piece in pattern.split("."):
        ends = re.fullmatch(r"(\d{1,4})-(\d{1,4})", piece)
        numbers = "|".join(map(str, range(int(ends[1]), int(ends[2]) + 1))) if ends else ""
        pieces.append(f"(?:{numbers})" if ends else re.escape(piece).replace(r"\*", ".*"))
    return re.compile(r"\.".join(pieces) + r"(?:\..*)?")


def suggest_patterns(pattern: str, names: Iterable[str]) -> str:
    """The nearest patterns that have a match, with `*` for the numbers of layers.

    >>> suggest_patterns("encoder.stak", ["encoder.stack.layers.0.out.weight", "encoder.stack.layers.1.out.weight"])
    'the nearest are encoder.stack, encoder.stack.layers, encoder'
    """
    prefixes = sorted({re.sub(r"\.\d+(?=\.|$)", ".*", prefix) for name in names for prefix in list_prefixes(name)})
    return f"the nearest are {', '.join(get_close_matches(pattern, prefixes, n=3, cutoff=0.0))}"


def summarize_names(names: Iterable[str], others: Iterable[str], most: int = 5) -> str:
    """The shortest prefixes that match `names` and none of `others`.

    >>> summarize_names(["head.bias", "head.table", "stack.1.out"], ["stack.0.out"])
    'head, stack.1'
    """
    excluded = {prefix for name in others for prefix in list_prefixes(name)}
    prefixes = list(dict.fromkeys(next((p for p in list_prefixes(name) if p not in excluded), name) for name in names))
    more = f" and {len(prefixes) - most} more" if len(prefixes) > most else ""
    return (", ".join(prefixes[:most]) + more) or "nothing"


def list_prefixes(name: str) -> Iterable[str]:
    """`a`, `a.b`, `a.b.c` of the name `a.b.c`."""
    return accumulate(name.split("."), "{}.{}".format)
