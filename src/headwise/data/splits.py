"""Re-iterable pairs that are not held in memory, and views of them: splits, spans, samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from headwise.data.config import UNPAIRED
from headwise.data.read import Pair, read_pairs
from headwise.data.readers.base import Columns
from headwise.data.readers.text import read_texts
from headwise.data.texts import Continuation


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts, read from the files at each iteration: they need not fit in memory."""

    files: tuple[Path, ...]
    format: str = "tsv"
    column: str = "upos"
    one_to_one: bool = False
    reverse: bool = False
    columns: Columns = ()

    def __iter__(self) -> Iterator[Pair]:
        if not self.files:
            return
        if self.format in UNPAIRED:
            yield from (("", text) for text in read_texts(self.files, self.format))
            return
        for first, second in read_pairs(self.files, self.format, self.column, self.one_to_one, self.columns):
            yield (second, first) if self.reverse else (first, second)


@dataclass(frozen=True)
class Split:
    """The pairs whose sources (or targets, if there are no sources) have fingerprints within a range."""

    pairs: Iterable[Pair]
    fingerprints: range

    def __iter__(self) -> Iterator[Pair]:
        selected = False
        for source, target in self.pairs:
            if not isinstance(target, Continuation):  # the pieces of a text stay together
                selected = fingerprint(source or target) in self.fingerprints
            if selected:
                yield source, target


@dataclass(frozen=True)
class TextSpan:
    """The characters from `start` to `end` of a single text."""

    pairs: Iterable[Pair]
    start: int
    end: int

    def __iter__(self) -> Iterator[Pair]:
        kind: type[str] = str
        position = 0
        for _, piece in self.pairs:
            if position >= self.end:
                return
            if part := piece[max(self.start - position, 0) : self.end - position]:
                yield "", kind(part)
                kind = Continuation
            position += len(piece)


@dataclass(frozen=True)
class PrefixedPairs:
    """The pairs with a prefix before every source."""

    pairs: Iterable[Pair]
    prefix: str

    def __iter__(self) -> Iterator[Pair]:
        return ((self.prefix + source, target) for source, target in self.pairs)


@dataclass(frozen=True)
class Subsample:
    """Every `step`-th pair."""

    pairs: Iterable[Pair]
    step: int

    def __iter__(self) -> Iterator[Pair]:
        return islice(iter(self.pairs), 0, None, self.step)


def fingerprint(source: str) -> int:
    """A 64-bit hash of a text, ignoring letter case, the same on every machine."""
    return int.from_bytes(blake2b(source.casefold().encode(), digest_size=8).digest(), "little")
