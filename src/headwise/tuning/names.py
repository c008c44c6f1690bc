"""Dotted names of parameters and modules: choosing them by patterns, and saying many of them briefly."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import accumulate

from headwise.errors import UserError


def match_names(patterns: Iterable[str], names: Iterable[str], key: str) -> list[str]:
    """The names that some pattern fits, in their order; a pattern that fits none is refused with the nearest ones.

    >>> names = ["embed.table", "layers.1.weight", "layers.2.weight", "b.bias"]
    >>> match_names(["embed", "layers.0-1", "*.bias"], names, "")
    ['embed.table', 'layers.1.weight', 'b.bias']
    """
    names, found = list(names), set()
    for pattern in patterns:
        fits = compile_pattern(pattern)
        if not (those := [name for name in names if fits.fullmatch(name)]):
            raise UserError(f"{key}: nothing in the model is called '{pattern}'; {suggest_patterns(pattern, names)}")
        found.update(those)
    return [name for name in names if name in found]


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern fits what it names and all that is inside; `*` is anything, dots too, `0-5` one of these numbers."""
    pieces = []
    for piece in pattern.split("."):
        ends = re.fullmatch(r"(\d{1,4})-(\d{1,4})", piece)
        numbers = "|".join(map(str, range(int(ends[1]), int(ends[2]) + 1))) if ends else ""
        pieces.append(f"(?:{numbers})" if ends else re.escape(piece).replace(r"\*", ".*"))
    return re.compile(r"\.".join(pieces) + r"(?:\..*)?")


def suggest_patterns(pattern: str, names: Iterable[str]) -> str:
    """Patterns that would fit something, with all layers as one.

    >>> suggest_patterns("encoder.stak", ["encoder.stack.layers.0.out.weight", "encoder.stack.layers.1.out.weight"])
    'the nearest are encoder.stack, encoder.stack.layers, encoder'
    """
    places = sorted({re.sub(r"\.\d+(?=\.|$)", ".*", place) for name in names for place in list_prefixes(name)})
    return f"the nearest are {', '.join(get_close_matches(pattern, places, n=3, cutoff=0.0))}"


def summarize_names(some: Iterable[str], others: Iterable[str], most: int = 5) -> str:
    """The shortest names that hold `some` and none of `others`.

    >>> summarize_names(["head.bias", "head.table", "stack.1.out"], ["stack.0.out"])
    'head, stack.1'
    """
    taken = {place for name in others for place in list_prefixes(name)}
    brief = list(dict.fromkeys(next((p for p in list_prefixes(name) if p not in taken), name) for name in some))
    more = f" and {len(brief) - most} more" if len(brief) > most else ""
    return (", ".join(brief[:most]) + more) or "nothing"


def list_prefixes(name: str) -> Iterable[str]:
    return accumulate(name.split("."), "{}.{}".format)
