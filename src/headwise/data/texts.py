"""Long texts in pieces: split between words, tokenised one by one, joined again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Pair = tuple[str, str]  # source and target; a text without a source is ("", text)

_BREAK = re.compile(r"(?<=\S)\s(?=\S)")  # no tokeniser merges across a single space between words
_BREAK_RANGE = 1024  # characters before the end in which a break is searched for


class Continuation(str):
    """A piece that continues the one before it.

    Some tokenisers treat the start of a text differently, for instance by putting a space before it. So a piece is
    encoded with a `lead` before it, whose tokens are dropped.
    """

    @property
    def lead(self) -> str:
        return "x" if self[:1].isspace() else "x\n"


def split_pieces(text: str, size: int) -> Iterator[str]:
    """Split a text into pieces of about this size; all but the first are a `Continuation`."""
    kind, start = type(text), 0
    while len(text) - start > 2 * size:
        end = start + find_break(text[start : start + size])
        yield kind(text[start:end])
        kind, start = Continuation, end
    yield kind(text[start:])


def join_pieces(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Join the pieces of each target.

    >>> list(join_pieces([("", "a"), ("", "b"), ("", Continuation(" c"))]))
    [('', 'a'), ('', 'b c')]
    """
    source, pieces = "", list[str]()
    for next_source, target in pairs:
        if not isinstance(target, Continuation):
            if pieces:
                yield source, "".join(pieces)
            source, pieces = next_source, []
        pieces.append(target)
    if pieces:
        yield source, "".join(pieces)


def find_break(text: str) -> int:
    """Index of the last space between words; of the end if none is near it, as in scripts without spaces."""
    start = max(len(text) - _BREAK_RANGE, 0)
    return max((match.start() for match in _BREAK.finditer(text, start)), default=len(text))
